// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/yamldoc"
)

// document is one document of a YAML or JSON file.
type document struct {
	file string
	// offset is the number of lines in the file before the document.
	offset int
	// json is the content of the document as JSON.
	json json.RawMessage
	// node is the YAML node of the content, with line numbers relative to the document.
	node *yamlv3.Node
}

// yamlReader converts a YAML document to JSON. root is the parsed document.
type yamlReader func(text string, root *yamlv3.Node) ([]byte, error)

// kubernetesYAML reads manifests as Kubernetes does: unquoted words such as y, no and on are booleans.
func kubernetesYAML(text string, _ *yamlv3.Node) ([]byte, error) {
	return yamldoc.JSON([]byte(text))
}

// plainYAML reads files that only Corral reads. It reads y, no, times and the keys of mappings as strings.
func plainYAML(_ string, root *yamlv3.Node) ([]byte, error) {
	tagAsStrings(root)
	var content any
	if err := root.Decode(&content); err != nil {
		return nil, err
	}
	return json.Marshal(content)
}

// tagAsStrings tags times and the keys of mappings as strings.
func tagAsStrings(n *yamlv3.Node) {
	for i, child := range n.Content {
		isKey := n.Kind == yamlv3.MappingNode && i%2 == 0 && child.Kind == yamlv3.ScalarNode && child.Tag != "!!merge"
		if isKey || child.Tag == "!!timestamp" {
			child.Tag = "!!str"
		}
		tagAsStrings(child)
	}
}

// separator matches --- at the beginning of a line, which separates documents.
var separator = regexp.MustCompile(`(?m)^---(?:[ \t\r]+|$)`)

// parseDocuments reads the documents of a file. It skips empty documents.
func parseDocuments(file string, data []byte, read yamlReader) (documents []document, diagnostics []v1alpha1.Diagnostic) {
	offset := 0
	for _, text := range separator.Split(string(data), -1) {
		d := document{file: file, offset: offset}
		offset += strings.Count(text, "\n")
		parsed, err := yamldoc.Parse([]byte(text))
		if err == nil && len(parsed) > 0 {
			d.node = parsed[0].Content[0]
			d.json, err = read(text, parsed[0])
		}
		switch {
		case err != nil:
			diagnostics = append(diagnostics, yamlProblem(file, text, d.offset, err))
		case len(d.json) > 0 && string(d.json) != "null":
			documents = append(documents, d)
		}
	}
	return documents, diagnostics
}

// yamlProblem returns the diagnostic for a syntax error in a document that begins after offset lines of the file.
func yamlProblem(file, text string, offset int, err error) v1alpha1.Diagnostic {
	problems := yamldoc.Problems([]byte(text), err)
	messages := converted(problems, func(p yamldoc.Problem) string { return strings.Join(strings.Fields(p.Message), " ") })
	return v1alpha1.Diagnostic{File: file, Line: v1alpha1.LineNumber(offset + problems[0].Line), Column: 1, Message: strings.Join(messages, "; ")}
}

// get returns the value of a field, or nil if there is no such field.
func get(n *yamlv3.Node, key string) *yamlv3.Node {
	_, value := field(n, key)
	return value
}

// field returns the nodes of a field's name and value, or nil if there is no such field.
func field(n *yamlv3.Node, key string) (name, value *yamlv3.Node) {
	if n == nil || n.Kind != yamlv3.MappingNode {
		return nil, nil
	}
	for pair := range slices.Chunk(n.Content, 2) {
		if pair[0].Value == key {
			return pair[0], pair[1]
		}
	}
	return nil, nil
}

// child returns the part n of d as a separate document. content is the JSON of the part.
func (d document) child(n *yamlv3.Node, content json.RawMessage) document {
	return document{file: d.file, offset: d.offset, json: content, node: n}
}

// line returns the line of the file where d begins.
func (d document) line() int { return d.offset + d.node.Line }

// at returns the line and the column of a field such as cases[0].expect. If the field does not exist, it returns the
// position of the closest enclosing field.
func (d document) at(path string) (line, column int) {
	n, place := d.node, d.node
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		name, next := field(n, step)
		if i, err := strconv.Atoi(step); err == nil && n.Kind == yamlv3.SequenceNode && i >= 0 && i < len(n.Content) {
			name, next = n.Content[i], n.Content[i]
		}
		if next == nil {
			break
		}
		n, place = next, name
	}
	return d.offset + place.Line, place.Column
}

var typeError = regexp.MustCompile(`^json: cannot unmarshal (\S+) into Go (?:struct field \w+\.(\S+)|value) of type (\S+)$`)

// embeddedStructs removes the names of embedded structs from the paths of fields, because users do not write these names.
var embeddedStructs = strings.NewReplacer("scenario.", "", "commonExpectation.", "")

// decode decodes d into v. It reports unknown and duplicate fields as diagnostics.
func (d document) decode(v any) (diagnostics []v1alpha1.Diagnostic) {
	strict, err := kjson.UnmarshalStrict(d.json, v1alpha1.Strict(v))
	if err != nil {
		path, message := "", err.Error()
		found := typeError.FindStringSubmatch(message)
		if found != nil {
			path, message = embeddedStructs.Replace(found[2]), fmt.Sprintf("must be %s, found a JSON %s", typeName(found[3]), found[1])
		}
		return []v1alpha1.Diagnostic{d.problem(path, "%s", message)}
	}
	for _, err := range strict {
		path := ""
		if f := kjson.FieldError(nil); errors.As(err, &f) {
			path = f.FieldPath()
		}
		diagnostics = append(diagnostics, d.problem(path, "%s", err))
	}
	return diagnostics
}

// typeNames maps prefixes of Go type names to the names that users know.
var typeNames = [][2]string{
	{"int", "a whole number"}, {"uint", "a whole number"}, {"bool", "true or false"}, {"string", "a string"}, {"cli.excerpt", "a string"}, {"[]", "a list"}, {"", "an object"},
}

func typeName(goType string) string {
	return typeNames[slices.IndexFunc(typeNames, func(n [2]string) bool { return strings.HasPrefix(goType, n[0]) })][1]
}

// problem returns a diagnostic at a field of d.
func (d document) problem(path, format string, args ...any) v1alpha1.Diagnostic {
	line, column := d.at(path)
	return v1alpha1.Diagnostic{File: d.file, Line: v1alpha1.LineNumber(line), Column: v1alpha1.LineNumber(column), Path: path, Message: fmt.Sprintf(format, args...)}
}
