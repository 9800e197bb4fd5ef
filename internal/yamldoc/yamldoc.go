// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package yamldoc decodes untrusted YAML and JSON. All packages of the product that read such files use it, or the
// nodes that it returns. It refuses documents with aliases.
package yamldoc

import (
	"bytes"
	"errors"
	"io"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// aliasError is the error for a document with an alias. Aliases are refused because a few nested ones expand kilobytes
// to gigabytes.
type aliasError struct{ line int }

func (aliasError) Error() string { return "it has an alias (*NAME): write out what it stands for" }

// Parse parses the documents of a text. Each is a node of kind DocumentNode. Problems converts an error of Parse to
// messages with line numbers.
func Parse(text []byte) ([]*yamlv3.Node, error) {
	var documents []*yamlv3.Node
	for decoder := yamlv3.NewDecoder(bytes.NewReader(text)); ; {
		document := &yamlv3.Node{}
		if err := decoder.Decode(document); errors.Is(err, io.EOF) {
			return documents, nil
		} else if err != nil {
			return nil, err //nolint:wrapcheck // the caller names the text
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

// JSON converts one document to JSON as Kubernetes does: unquoted words such as y, no and on are booleans. Duplicate
// keys are an error.
func JSON(text []byte) ([]byte, error) {
	if _, err := Parse(text); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSONStrict(text) //nolint:wrapcheck // the caller names the text
}

// Object decodes one object as Kubernetes does. Duplicate keys are an error.
func Object(text []byte) (map[string]any, error) {
	if _, err := Parse(text); err != nil {
		return nil, err
	}
	var object map[string]any
	err := yaml.UnmarshalStrict(text, &object)
	return object, err //nolint:wrapcheck // the caller names the text
}

// Strict decodes the first document into a value, according to the yaml tags of the value's type. Unknown fields and
// duplicate keys are errors. A text without a document leaves the value unchanged.
func Strict(text []byte, value any) error {
	if _, err := Parse(text); err != nil {
		return err
	}
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(value); !errors.Is(err, io.EOF) {
		return err //nolint:wrapcheck // the caller names the text
	}
	return nil
}
