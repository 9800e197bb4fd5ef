// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package github compares the simulated GitHub, the requests that Corral sends and the answers that it reads with
// GitHub's published descriptions of its REST API and webhooks. It covers github.com, Enterprise Cloud and each
// described version of Enterprise Server. `make interop-github` downloads the descriptions.
package github

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/corral-dev/corral/sim/githubsim"
)

// published is the folder that fetch.sh prints. It holds the downloaded descriptions.
var published = os.Getenv("CORRAL_INTEROP_GITHUB")

func TestMain(m *testing.M) {
	if published == "" {
		fmt.Fprintln(os.Stderr, "skipped: GitHub's descriptions are missing; make interop-github downloads them")
		return
	}
	os.Exit(m.Run())
}

// products lists, for each mode of the simulated GitHub, the products whose descriptions it must match.
var products = map[githubsim.Mode][]string{
	githubsim.AutoAssign: {"api.github.com", "ghec"},
	githubsim.Acquire:    {"ghes-3.17", "ghes-3.18", "ghes-3.19"},
}

// description is a published OpenAPI description of a product.
type description struct {
	*openapi3.T
	router routers.Router
}

// describe reads a product's description; kind is "rest" or "webhooks".
func describe(t *testing.T, kind, product string) description {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(published, kind, "generated", product+".json"))
	if err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil // match routes by path only, not by host
	d := description{T: doc}
	if d.router, err = gorillamux.NewRouter(doc); err != nil {
		t.Fatal(err)
	}
	return d
}

// checks returns the options for validating bodies and parameters.
func checks() *openapi3filter.Options {
	o := &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, MultiError: true, SkipSettingDefaults: true,
		SchemaValidationOptions: []openapi3.SchemaValidationOption{
			openapi3.EnableFormatValidation(), openapi3.WithStringFormatValidator("uri", openapi3.NewCallbackValidator(isURI)),
		},
	}
	o.WithCustomSchemaErrorFunc(func(e *openapi3.SchemaError) string {
		return fmt.Sprintf("/%s: %s", strings.Join(e.JSONPointer(), "/"), e.Reason)
	})
	return o
}

func isURI(text string) error {
	if u, err := url.Parse(text); err != nil || u.Scheme == "" || u.Host == "" {
		return errors.New("not an absolute URI")
	}
	return nil
}

// validateRequest returns the problems of a request. It also rejects parameters that GitHub does not publish, because
// GitHub would ignore them.
func validateRequest(input *openapi3filter.RequestValidationInput) error {
	err := openapi3filter.ValidateRequest(input.Request.Context(), input)
	for name := range input.Request.URL.Query() {
		if input.Route.Operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			err = errors.Join(err, fmt.Errorf("the parameter %q is not published", name))
		}
	}
	return err
}
