// Search over the index of all pages, which is fetched when the field is first used.
const script = document.currentScript
const field = document.getElementById('search')
const found = document.getElementById('found')
let pages

field.addEventListener('focus', async () => {
  pages ??= (await (await fetch(script.dataset.index)).json()).map(p => ({...p, all: `${p.title} ${p.headings} ${p.text}`.toLowerCase()}))
  show()
}, {once: false})
field.addEventListener('input', show)
field.addEventListener('keydown', e => {
  if (e.key === 'Enter') found.querySelector('a')?.click()
  if (e.key === 'Escape') { field.value = ''; show() }
})
document.addEventListener('keydown', e => {
  if (e.key === '/' && document.activeElement !== field) { e.preventDefault(); field.focus() }
})

// score prefers words in the title to words in headings, and those to words in the text.
function score(page, words) {
  let sum = 0
  for (const word of words) {
    if (!page.all.includes(word)) return 0
    sum += page.title.toLowerCase().includes(word) ? 100 : page.headings.toLowerCase().includes(word) ? 20 : 1
  }
  return sum
}

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean)
  const best = (words.length ? pages ?? [] : []).map(page => ({page, points: score(page, words)}))
    .filter(x => x.points > 0).sort((a, b) => b.points - a.points).slice(0, 12)
  found.replaceChildren(...best.map(({page}) => {
    const item = document.createElement('li'), link = document.createElement('a'), text = document.createElement('span')
    const at = page.text.toLowerCase().indexOf(words[0])
    link.href = page.url
    link.textContent = page.title
    text.textContent = at < 0 ? page.headings : '…' + page.text.slice(Math.max(0, at - 40), at + 100) + '…'
    item.append(link, text)
    return item
  }))
  if (words.length && !best.length) found.textContent = pages ? 'Nothing found' : 'Loading…'
  found.hidden = !words.length
}
