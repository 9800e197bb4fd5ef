// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
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
	rules := []sarifRule{}
	index := map[string]int{}
	results := []sarifResult{}
	if rest := len(sorted) - maxResults + 1; rest > 1 {
		more := Finding{Level: sorted[maxResults-1].Level, Rule: "corral.more", Title: "Findings left out", Message: fmt.Sprintf("and %d more findings", rest)}
		sorted = append(sorted[:maxResults-1], more)
	}
	for _, f := range sorted {
		if _, known := index[f.Rule]; !known {
			index[f.Rule] = len(rules)
			rules = append(rules, sarifRule{f.Rule, textOf(f.Title)})
		}
		results = append(results, resultOf(f, index[f.Rule]))
	}
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: results}
	run.Tool.Driver = sarifDriver{toolName, toolURI, version, rules}
	log := sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(log); err != nil {
		return fmt.Errorf("writing SARIF: %w", err)
	}
	return nil
}

// textOf is nothing of a text that is empty.
func textOf(text string) sarifText {
	if text == "" {
		return nil
	}
	return sarifText{"text": text}
}

func resultOf(f Finding, rule int) sarifResult {
	text := f.says()
	if f.Help != "" {
		text += "\n" + f.Help
	}
	r := sarifResult{
		RuleID: f.Rule, RuleIndex: rule, Level: f.Level, Message: textOf(text),
		Fingerprints: map[string]string{fingerprintKey: fingerprint(f) + ":1"},
	}
	place := sarifLocation{Physical: cmp.Or(physical(f.Place), &sarifPhysical{Artifact: sarifArtifact{"uri": nowhere}})}
	if f.Path != "" {
		place.Logical = []sarifLogical{{"fullyQualifiedName": f.Path}}
	}
	r.Locations = []sarifLocation{place}
	if source := physical(f.Source); source != nil {
		r.Related = []sarifLocation{{ID: 1, Physical: source, Message: textOf("the rule")}}
	}
	return r
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

func physical(p Place) *sarifPhysical {
	if p.File == "" {
		return nil
	}
	uri := (&url.URL{Path: p.File}).EscapedPath()
	at := &sarifPhysical{Artifact: sarifArtifact{"uri": uri, "uriBaseId": sourceRoot}}
	if path.IsAbs(p.File) {
		at.Artifact = sarifArtifact{"uri": "file://" + uri}
	}
	if p.Line > 0 {
		at.Region = &sarifRegion{Line: p.Line, Column: p.Column}
	}
	return at
}

// What of SARIF is written, by its names.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Version        string      `json:"version,omitempty"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID    string    `json:"id"`
		Short sarifText `json:"shortDescription,omitempty"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        Level             `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations,omitempty"`
		Related      []sarifLocation   `json:"relatedLocations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		ID       int            `json:"id,omitempty"`
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
		Message  sarifText      `json:"message,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifText     map[string]string
	sarifLogical  map[string]string
	sarifArtifact map[string]string
	sarifRegion   struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn,omitempty"`
	}
)
