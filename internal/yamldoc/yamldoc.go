// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package yamldoc reads YAML and JSON that isn't trusted. It is a package because compile and policy need it, neither of which may
// import the other.
package yamldoc

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// errAlias is why a document isn't read: a few aliases of aliases make gigabytes of kilobytes.
var errAlias = errors.New("it has an alias (*NAME): write out what it stands for")

// Object reads one object. Two keys of one name and aliases are errors.
func Object(text []byte) (map[string]any, error) {
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(text, &document); err != nil {
		return nil, err //nolint:wrapcheck // it says what is wrong, and the caller with what
	}
	if hasAlias(&document) {
		return nil, errAlias
	}
	var object map[string]any
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		return nil, err //nolint:wrapcheck // it says what is wrong, and the caller with what
	}
	return object, nil
}

func hasAlias(node *yamlv3.Node) bool {
	return node.Kind == yamlv3.AliasNode || slices.ContainsFunc(node.Content, hasAlias)
}

// Problem is something that a parser of YAML doesn't like, and the line where that is.
type Problem struct {
	Line    int
	Message string
}

var atLine = regexp.MustCompile(`\bline (\d+): ?`)

// Problems reads what a parser says: each of several is one of its own.
func Problems(err error) []Problem {
	messages := []string{err.Error()}
	if several := (*yamlv3.TypeError)(nil); errors.As(err, &several) {
		messages = several.Errors
	}
	var problems []Problem
	for _, message := range messages {
		p := Problem{Line: 1}
		if found := atLine.FindStringSubmatch(message); found != nil {
			p.Line, _ = strconv.Atoi(found[1]) // they are digits
		}
		p.Message = strings.TrimPrefix(atLine.ReplaceAllString(message, ""), "yaml: ")
		problems = append(problems, p)
	}
	return problems
}
