// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package yamldoc reads YAML and JSON that isn't trusted. It is the only package of the product that decodes YAML: others write it, or
// look at the nodes that this package returns. No document with an alias is read.
package yamldoc

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// aliasError is why a document isn't read: a few aliases of aliases make gigabytes of kilobytes.
type aliasError struct{ line int }

func (aliasError) Error() string { return "it has an alias (*NAME): write out what it stands for" }

// Parse reads the documents of a text. Each is a node of the kind DocumentNode. Errors say what is wrong, and where Problems finds it.
func Parse(text []byte) ([]*yamlv3.Node, error) {
	var documents []*yamlv3.Node
	for decoder := yamlv3.NewDecoder(bytes.NewReader(text)); ; {
		document := &yamlv3.Node{}
		if err := decoder.Decode(document); errors.Is(err, io.EOF) {
			return documents, nil
		} else if err != nil {
			return nil, err //nolint:wrapcheck // it says what is wrong, and the caller with what
		}
		if err := checkAliases(document); err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
}

func checkAliases(node *yamlv3.Node) error {
	if node.Kind == yamlv3.AliasNode {
		return aliasError{node.Line}
	}
	for _, child := range node.Content {
		if err := checkAliases(child); err != nil {
			return err
		}
	}
	return nil
}

// JSON returns a document as JSON, read as Kubernetes reads it: y, no and on are true and false. Two keys of one name are an error.
func JSON(text []byte) ([]byte, error) {
	if _, err := Parse(text); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSONStrict(text) //nolint:wrapcheck // it says what is wrong, and the caller with what
}

// Object reads one object as Kubernetes reads it. Two keys of one name are an error.
func Object(text []byte) (map[string]any, error) {
	if _, err := Parse(text); err != nil {
		return nil, err
	}
	var object map[string]any
	err := yaml.UnmarshalStrict(text, &object)
	return object, err //nolint:wrapcheck // it says what is wrong, and the caller with what
}

// Strict reads the first document into a value, by its tags for YAML. Unknown fields and two keys of one name are errors. A text without
// a document leaves the value as it is.
func Strict(text []byte, value any) error {
	if _, err := Parse(text); err != nil {
		return err
	}
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(value); !errors.Is(err, io.EOF) {
		return err //nolint:wrapcheck // it says what is wrong, and the caller with what
	}
	return nil
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
	if alias := (aliasError{}); errors.As(err, &alias) {
		return []Problem{{Line: alias.line, Message: alias.Error()}}
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
