// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// maxResults is the maximum number of results per run that GitHub shows.
const maxResults = 5000

const (
	sarifSchema = "https://json.schemastore.org/sarif-2.1.0.json"
	toolName    = "corral"
	toolURI     = "https://github.com/corral-dev/corral"
	// sourceRoot is code scanning's name for the root of the checkout.
	sourceRoot = "%SRCROOT%"
	// nowhere is the location of a finding without a place, because code scanning rejects results without a location.
	nowhere = "file:///"
	// fingerprintKey is the name of the fingerprint that code scanning uses to recognize a finding in a later run. Without a
	// fingerprint, code scanning computes one from the content of the line, which the findings of many pools can share.
	fingerprintKey = "primaryLocationLineHash"
)

// SARIF returns a SARIF 2.1.0 log, which the caller encodes as JSON, with the most severe findings first. If there are more
// than 5,000 findings, the last result gives the number of the others. version is the version of corral. Findings with the
// same fingerprint are numbered, because code scanning shows results with equal fingerprints as one alert.
func SARIF(version string, findings []Finding) any {
	sorted := worstFirst(findings)
	if rest := len(sorted) - maxResults + 1; rest > 1 {
		more := Finding{Level: sorted[maxResults-1].Level, Rule: "corral.more", Title: "Findings left out", Message: fmt.Sprintf("and %d more findings", rest)}
		sorted = append(sorted[:maxResults-1], more)
	}
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: toolName, InformationURI: toolURI, Version: version, Rules: []sarifRule{}}
	rules, known := &run.Tool.Driver.Rules, map[string]int{}
	for _, f := range sorted {
		rule := slices.IndexFunc(*rules, func(r sarifRule) bool { return r.ID == f.Rule })
		if rule < 0 {
			rule = len(*rules)
			*rules = append(*rules, sarifRule{f.Rule, sarifText{f.Title}})
		}
		same := fingerprint(f)
		known[same]++
		run.Results = append(run.Results, resultOf(f, rule, fmt.Sprintf("%s:%d", same, known[same])))
	}
	return sarifLog{sarifSchema, []sarifRun{run}, "2.1.0"}
}

// The types of the elements of SARIF that Corral writes.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Runs    []sarifRun `json:"runs"`
		Version string     `json:"version"`
	}
	sarifRun struct {
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
		Tool       struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
	}
	sarifDriver struct {
		InformationURI string      `json:"informationUri"`
		Name           string      `json:"name"`
		Rules          []sarifRule `json:"rules"`
		Version        string      `json:"version,omitempty"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription,omitzero"`
	}
	sarifResult struct {
		Level               Level             `json:"level"`
		Locations           []sarifLocation   `json:"locations"`
		Message             sarifText         `json:"message"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
		RelatedLocations    []sarifLocation   `json:"relatedLocations,omitempty"`
		RuleID              string            `json:"ruleId"`
		RuleIndex           int               `json:"ruleIndex"`
	}
	sarifLocation struct {
		ID               int            `json:"id,omitempty"`
		LogicalLocations []sarifLogical `json:"logicalLocations,omitempty"`
		Message          sarifText      `json:"message,omitzero"`
		PhysicalLocation sarifPlace     `json:"physicalLocation"`
	}
	sarifPlace struct {
		ArtifactLocation sarifArtifact `json:"artifactLocation"`
		Region           sarifRegion   `json:"region,omitzero"`
	}
	sarifArtifact struct {
		URI       string `json:"uri"`
		URIBaseID string `json:"uriBaseId,omitempty"`
	}
	sarifRegion struct {
		StartColumn int `json:"startColumn,omitempty"`
		StartLine   int `json:"startLine,omitempty"`
	}
	sarifLogical struct {
		FullyQualifiedName string `json:"fullyQualifiedName"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
)

func resultOf(f Finding, rule int, fingerprint string) sarifResult {
	text := strings.TrimSuffix(f.says()+"\n"+f.Help, "\n")
	place := sarifLocation{PhysicalLocation: physical(f.Place)}
	if f.Path != "" {
		place.LogicalLocations = []sarifLogical{{f.Path}}
	}
	r := sarifResult{
		RuleID: f.Rule, RuleIndex: rule, Level: f.Level, Message: sarifText{text}, Locations: []sarifLocation{place},
		PartialFingerprints: map[string]string{fingerprintKey: fingerprint},
	}
	if f.Source.File != "" {
		r.RelatedLocations = []sarifLocation{{ID: 1, PhysicalLocation: physical(f.Source), Message: sarifText{"the rule"}}}
	}
	return r
}

// fingerprint returns a hash that identifies a finding independently of its line and column.
func fingerprint(f Finding) string {
	what := []string{f.Rule, f.Subject, f.Place.File, f.Path, f.Message}
	if f.Known != "" {
		what = []string{f.Rule, f.Known}
	}
	sum := sha256.Sum256([]byte(strings.Join(what, "\x00")))
	return hex.EncodeToString(sum[:])[:32]
}

func physical(p Place) sarifPlace {
	uri := (&url.URL{Path: p.File}).EscapedPath()
	switch {
	case p.File == "":
		return sarifPlace{ArtifactLocation: sarifArtifact{URI: nowhere}}
	case path.IsAbs(p.File):
		return sarifPlace{sarifArtifact{URI: "file://" + uri}, sarifRegion{StartLine: p.Line, StartColumn: p.Column}}
	}
	return sarifPlace{sarifArtifact{uri, sourceRoot}, sarifRegion{StartLine: p.Line, StartColumn: p.Column}}
}
