// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// JUnit writes suites in the XML format that JUnit made common.
func JUnit(w io.Writer, suites []Suite) error {
	all := junitSuites{Suites: []junitSuite{}}
	var total time.Duration
	for _, s := range suites {
		suite, took := junitOf(s)
		all.Suites = append(all.Suites, suite)
		all.Tests, all.Failures = all.Tests+suite.Tests, all.Failures+suite.Failures
		total += took
	}
	all.Time = seconds(total)
	data, err := xml.MarshalIndent(all, "", "  ")
	if err == nil {
		_, err = io.WriteString(w, xml.Header+string(data)+"\n")
	}
	if err != nil {
		return fmt.Errorf("writing JUnit: %w", err)
	}
	return nil
}

func junitOf(s Suite) (junitSuite, time.Duration) {
	suite := junitSuite{Name: s.Name, Tests: len(s.Cases)}
	var total time.Duration
	for _, c := range s.Cases {
		j := junitCase{Class: s.Name, Name: c.Name, File: c.Place.File, Line: c.Place.Line, Time: seconds(c.Duration)}
		switch {
		case c.Failure != "":
			first, _, _ := strings.Cut(c.Failure, "\n")
			j.Failure = &junitText{Message: first, Text: c.Failure}
			suite.Failures++
		case c.Skipped:
			j.Skipped = &struct{}{}
			suite.Skipped++
		}
		if c.Output != "" {
			j.Output = &junitText{Text: c.Output}
		}
		suite.Cases = append(suite.Cases, j)
		total += c.Duration
	}
	suite.Time = seconds(total)
	return suite, total
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// What of JUnit's format is written.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		File    string     `xml:"file,attr,omitempty"`
		Line    int        `xml:"line,attr,omitempty"`
		Time    string     `xml:"time,attr"`
		Failure *junitText `xml:"failure"`
		Skipped *struct{}  `xml:"skipped"`
		Output  *junitText `xml:"system-out"`
	}
	junitText struct {
		Message string `xml:"message,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)
