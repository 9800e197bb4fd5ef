// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// maxBody is the maximum size of any request's body in bytes.
const maxBody = 16 << 20

// handler answers one call.
type handler func(r *http.Request) answer

// answer is a handler's answer. The zero value means no answer, because the caller has left.
type answer struct {
	status int
	body   any
	header map[string]string
	bom    bool
}

func ok(body any) answer      { return answer{status: http.StatusOK, body: body} }
func created(body any) answer { return answer{status: http.StatusCreated, body: body} }
func noContent() answer       { return answer{status: http.StatusNoContent} }
func accepted() answer        { return answer{status: http.StatusAccepted} }

func (a answer) with(key, value string) answer {
	header := map[string]string{key: value}
	for k, v := range a.header {
		header[k] = v
	}
	a.header = header
	return a
}

// restError is an error in the format of GitHub's REST API.
func restError(status int, message string) answer {
	return answer{status: status, body: map[string]string{
		"message": message, "documentation_url": "https://docs.github.com/rest", "status": strconv.Itoa(status),
	}}
}

// exception is an error in the format of the Actions service. Clients match a part of typeName.
type exception struct {
	ID             string  `json:"$id"`
	InnerException *string `json:"innerException"`
	Message        string  `json:"message"`
	TypeName       string  `json:"typeName"`
	TypeKey        string  `json:"typeKey"`
	ErrorCode      int     `json:"errorCode"`
	EventID        int     `json:"eventId"`
}

func serviceError(status int, key, format string, args ...any) answer {
	return answer{status: status, body: exception{
		ID: "1", Message: fmt.Sprintf(format, args...), TypeKey: key, EventID: 3000,
		TypeName: "GitHub.Actions.Runtime.WebApi." + key + ", GitHub.Actions.Runtime.WebApi",
	}}
}

// listBody is the Actions service's format for lists.
type listBody[T any] struct {
	Count int `json:"count"`
	Value []T `json:"value"`
}

func listOf[T any](values []T) listBody[T] {
	if values == nil {
		values = []T{}
	}
	return listBody[T]{Count: len(values), Value: values}
}

func (a answer) write(w http.ResponseWriter) {
	if a.status == 0 {
		return
	}
	for key, value := range a.header {
		w.Header().Set(key, value)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	body, isText := a.body.(string)
	if !isText {
		encoded, err := json.Marshal(a.body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		body = string(encoded)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
	}
	if a.bom {
		body = "\xef\xbb\xbf" + body
	}
	w.WriteHeader(a.status)
	_, _ = w.Write([]byte(body)) // the caller may have left
}

// decode reads a JSON body.
func decode(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return fmt.Errorf("decoding the request's body: %w", err)
	}
	return nil
}

// pathID reads an id from the path; 0 if it is not a number.
func pathID(r *http.Request, name string) int {
	id, err := strconv.Atoi(r.PathValue(name))
	if err != nil {
		return 0
	}
	return id
}

// stamp formats a time as GitHub's REST API does.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
