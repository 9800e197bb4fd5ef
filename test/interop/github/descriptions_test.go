// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package github holds the simulated GitHub, and what Corral asks it and reads of it, against what GitHub publishes of its REST API
// and its webhooks: github.com, its Enterprise Cloud, and each Enterprise Server that is described. `make interop-github` fetches that.
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

// published is the folder that fetch.sh prints.
var published = os.Getenv("CORRAL_INTEROP_GITHUB")

func TestMain(m *testing.M) {
	if published == "" {
		fmt.Fprintln(os.Stderr, "skipped: what GitHub publishes isn't here; make interop-github fetches it")
		return
	}
	os.Exit(m.Run())
}

// products are whose descriptions a mode of the simulated GitHub has to fit.
var products = map[githubsim.Mode][]string{
	githubsim.AutoAssign: {"api.github.com", "ghec"},
	githubsim.Acquire:    {"ghes-3.17", "ghes-3.18", "ghes-3.19"},
}

// description is what GitHub publishes of a product.
type description struct {
	*openapi3.T
	router routers.Router
}

// describe reads the description of a product's "rest" or "webhooks".
func describe(t *testing.T, what, product string) description {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(published, what, "generated", product+".json"))
	if err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil // paths are compared, wherever the server is
	d := description{T: doc}
	if d.router, err = gorillamux.NewRouter(doc); err != nil {
		t.Fatal(err)
	}
	return d
}

// checks are how the validator judges bodies and parameters.
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
		return errors.New("no absolute URI")
	}
	return nil
}

// validateRequest says what is wrong with a request. A parameter that GitHub doesn't publish is wrong, too: it would be ignored.
func validateRequest(input *openapi3filter.RequestValidationInput) error {
	err := openapi3filter.ValidateRequest(input.Request.Context(), input)
	for name := range input.Request.URL.Query() {
		if input.Route.Operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			err = errors.Join(err, fmt.Errorf("the parameter %q isn't published", name))
		}
	}
	return err
}
