-- Conditions follow kstatus: Stalled is there only when no retry will help, and Ready always.
local function condition(kind)
  for _, c in ipairs((obj.status or {}).conditions or {}) do
    if c.type == kind then
      return c
    end
  end
  return {}
end

local function health(status, message)
  return {status = status, message = message or ""}
end

local ready, stalled = condition("Ready"), condition("Stalled")
if obj.status == nil or (obj.status.observedGeneration or -1) ~= obj.metadata.generation then
  return health("Progressing", "Waiting for the controller")
end
if obj.spec.stopPolicy == "Hold" or obj.spec.stopPolicy == "Drain" then
  return health("Suspended", ready.message or "Suspended")
end
if stalled.status == "True" then
  return health("Degraded", stalled.message)
end
-- An update goes on, or is held, while the pool serves jobs. It is told, but a sync doesn't wait
-- for it: busy runners may take hours, a held update days.
if ready.status == "True" then
  local updated = condition("Updated")
  if updated.status == "False" then
    return health("Healthy", (ready.message or "") .. "; update: " .. (updated.message or ""))
  end
  return health("Healthy", ready.message)
end
-- What ends by itself, or is another object's fault and shown there.
local waiting = {Progressing = true, ConnectionNotReady = true, PolicyPending = true, SessionRefused = true, Draining = true}
if ready.status == "False" and not waiting[ready.reason] then
  return health("Degraded", ready.message)
end
return health("Progressing", ready.message or "Waiting for the controller")
