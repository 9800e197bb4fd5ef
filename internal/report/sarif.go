// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"
)

// maxResults is how many results GitHub keeps of one run.
const maxResults = 5000

const (
	sarifSchema = "https://json.schemastore.org/sarif-2.1.0.json"
	toolName    = "corral"
	toolURI     = "https://github.com/corral-dev/corral"
	// sourceRoot is the root of the checkout, as code scanning knows it.
	sourceRoot = "%SRCROOT%"
	// nowhere is the place of a finding without one: code scanning refuses results without.
	nowhere = "file:///"
	// fingerprintKey is what code scanning knows findings again by. Its own would be the content of
	// the line, which many pools may share.
	fingerprintKey = "primaryLocationLineHash"
)

// SARIF writes findings as a SARIF 2.1.0 log, the worst first. Of more than 5,000, the rest is
// counted in the last result. Version is the tool's.
func SARIF(w io.Writer, version string, findings []Finding) error {
	sorted := worstFirst(findings)
	if rest := len(sorted) - maxResults + 1; rest > 1 {
		more := Finding{Level: sorted[maxResults-1].Level, Rule: "corral.more", Title: "Findings left out", Message: fmt.Sprintf("and %d more findings", rest)}
		sorted = append(sorted[:maxResults-1], more)
	}
	rules, results := []object{}, []object{}
	index := map[string]int{}
	for _, f := range sorted {
		if _, known := index[f.Rule]; !known {
			index[f.Rule] = len(rules)
			rule := object{"id": f.Rule}
			rules = append(rules, rule.with("shortDescription", object{"text": f.Title}, f.Title != ""))
		}
		results = append(results, resultOf(f, index[f.Rule]))
	}
	driver := object{"name": toolName, "informationUri": toolURI, "rules": rules}
	run := object{"tool": object{"driver": driver.with("version", version, version != "")}, "columnKind": "unicodeCodePoints", "results": results}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(object{"$schema": sarifSchema, "version": "2.1.0", "runs": []object{run}}); err != nil {
		return fmt.Errorf("writing SARIF: %w", err)
	}
	return nil
}

// object is one of SARIF, by the names of its fields.
type object map[string]any

// with adds a field that not all objects have.
func (o object) with(name string, value any, has bool) object {
	if has {
		o[name] = value
	}
	return o
}

func resultOf(f Finding, rule int) object {
	text := f.says()
	if f.Help != "" {
		text += "\n" + f.Help
	}
	place := object{"physicalLocation": object{"artifactLocation": object{"uri": nowhere}}}
	place.with("physicalLocation", physical(f.Place), f.Place.File != "")
	place.with("logicalLocations", []object{{"fullyQualifiedName": f.Path}}, f.Path != "")
	r := object{
		"ruleId": f.Rule, "ruleIndex": rule, "level": f.Level, "message": object{"text": text}, "locations": []object{place},
		"partialFingerprints": object{fingerprintKey: fingerprint(f) + ":1"},
	}
	source := object{"id": 1, "physicalLocation": physical(f.Source), "message": object{"text": "the rule"}}
	return r.with("relatedLocations", []object{source}, f.Source.File != "")
}

// fingerprint names a finding whatever moves it: neither lines nor columns are in it.
func fingerprint(f Finding) string {
	what := []string{f.Rule, f.Subject, f.Place.File, f.Path, f.Message}
	if f.Known != "" {
		what = []string{f.Rule, f.Known}
	}
	sum := sha256.Sum256([]byte(strings.Join(what, "\x00")))
	return hex.EncodeToString(sum[:])[:32]
}

func physical(p Place) object {
	uri := (&url.URL{Path: p.File}).EscapedPath()
	artifact := object{"uri": uri, "uriBaseId": sourceRoot}
	if path.IsAbs(p.File) {
		artifact = object{"uri": "file://" + uri}
	}
	region := object{"startLine": p.Line}
	region.with("startColumn", p.Column, p.Column > 0)
	return object{"artifactLocation": artifact}.with("region", region, p.Line > 0)
}
