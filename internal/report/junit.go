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
	all := junitSuites{}
	for _, s := range suites {
		suite := junitOf(s)
		all.Suites = append(all.Suites, suite)
		all.Tests, all.Failures, all.Time = all.Tests+suite.Tests, all.Failures+suite.Failures, all.Time+suite.Time
	}
	data, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("writing JUnit: %w", err)
	}
	return write(w, "JUnit", xml.Header+string(data)+"\n")
}

func junitOf(s Suite) junitSuite {
	suite := junitSuite{Name: s.Name, Tests: len(s.Cases)}
	for _, c := range s.Cases {
		j := junitCase{Class: s.Name, Name: c.Name, File: c.Place.File, Line: c.Place.Line, Time: seconds(c.Duration)}
		suite.Time += j.Time
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
	}
	return suite
}

type seconds time.Duration

func (s seconds) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%.3f", time.Duration(s).Seconds()), nil
}

// What of JUnit's format is written.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Time     seconds      `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     seconds     `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		File    string     `xml:"file,attr,omitempty"`
		Line    int        `xml:"line,attr,omitempty"`
		Time    seconds    `xml:"time,attr"`
		Failure *junitText `xml:"failure"`
		Skipped *struct{}  `xml:"skipped"`
		Output  *junitText `xml:"system-out"`
	}
	junitText struct {
		Message string `xml:"message,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)
