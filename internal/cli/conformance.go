// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/conformance"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/turns"
)

// conformanceReport is what somebody may attach to an issue.
type conformanceReport struct {
	Version  string                `json:"version"`
	Server   string                `json:"server"`
	Scope    string                `json:"scope"`
	Findings []conformance.Finding `json:"findings"`
}

func newConformance(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "conformance --url URL --credentials FOLDER",
		Short: "Find out how your GitHub behaves where Corral relies on it",
		Long: `Make a scale set and a runner of its own on GitHub, see how sessions, labels, registrations
and look-ups answer, and remove both. No job is taken. It needs the rights that a connection
needs, and takes some four minutes: it waits for GitHub to end a session.

--credentials is a folder with the files of a connection's mountRef (github_token, or
github_app_id, github_app_installation_id and github_app_private_key), or secret/NAME, a Secret
of --namespace with these keys, read with your own rights. The report names no organization,
repository, user or host. The exit code is 3 if anything differs from what Corral relies on.`,
		Example: "  corral conformance --url https://github.com/acme --credentials ./credentials\n" +
			"  corral conformance --url https://github.com/acme --credentials secret/github --namespace ci -o json > report.json",
		Args: cobra.NoArgs,
	}
	var address, from, group string
	var hook int64
	flags := c.Flags()
	flags.StringVar(&address, "url", "", "organization, repository or enterprise, as a browser shows it")
	flags.StringVar(&from, "credentials", "", "folder, or secret/NAME")
	flags.StringVar(&group, "runner-group", "", "runner group (default: the default one)")
	flags.Int64Var(&hook, "hook-id", 0, "webhook whose deliveries are listed (default: an App's own)")
	cluster := bindCluster(flags, version, "with secret/NAME: ")
	flags.StringVarP(&cluster.namespace, "namespace", "n", "", "with secret/NAME: its namespace (default: the context's)")
	retry := flags.Duration("retry", 5*time.Second, "time between two attempts at a session that blocks")
	f := bindFormat(c, "text", "json", "yaml")
	c.RunE = func(c *cobra.Command, _ []string) error {
		creds, err := credentialsFrom(c.Context(), cluster, from)
		if err != nil {
			return err
		}
		creds.ConfigURL = address
		config, err := conformanceOf(creds, version)
		if err != nil {
			return err
		}
		config.Group, config.HookID, config.HasHook, config.Retry, config.Patience = group, hook, hook != 0 || creds.App != nil, *retry, 3*time.Minute
		hide := redactor(creds, group)
		config.Told = func(found conformance.Finding) {
			if f.value == "text" {
				fmt.Fprintf(c.OutOrStdout(), "%-12s %s: %s\n", found.Verdict, found.Check, hide(found.Found))
				if found.Means != "" {
					fmt.Fprintf(c.OutOrStdout(), "%12s so that %s\n", "", found.Means)
				}
			}
		}
		return writeConformance(c, f, version, config, hide)
	}
	return c
}

func writeConformance(c *cobra.Command, f *format, version string, config conformance.Config, hide func(string) string) error {
	target := config.REST.Target()
	r := conformanceReport{Version: version, Server: "github.com", Scope: string(target.Scope), Findings: conformance.Run(c.Context(), config)}
	if target.Server {
		r.Server = "GitHub Enterprise Server"
	}
	differs := 0
	for i := range r.Findings {
		r.Findings[i].Found = hide(r.Findings[i].Found)
		if r.Findings[i].Verdict != conformance.AsExpected {
			differs++
		}
	}
	if f.value != "text" {
		if err := f.write(c.OutOrStdout(), r); err != nil {
			return err
		}
	}
	if differs > 0 {
		return fmt.Errorf("%d of %d findings %w", differs, len(r.Findings), errDiffers)
	}
	return nil
}

// conformanceOf makes the clients of two processes with the same credentials.
func conformanceOf(creds github.Credentials, version string) (c conformance.Config, err error) {
	options := github.Options{Version: version}
	c.Network = options.WithDefaults(turns.First).For(creds).Transport
	c.Name = "corral-conformance-" + rand.String(6)
	c.Verify = func(ctx context.Context) (rest.Identity, error) { return rest.Verify(ctx, creds, options) }
	if c.Sets, err = scaleset.NewClient(creds, options); err != nil {
		return c, err
	}
	if c.Others, err = scaleset.NewClient(creds, options); err != nil {
		return c, err
	}
	c.REST, err = rest.NewClient(creds, options)
	return c, err
}

// credentialsFrom reads a folder, or a Secret of the cluster.
func credentialsFrom(ctx context.Context, cluster *clusterOptions, from string) (github.Credentials, error) {
	name, isSecret := strings.CutPrefix(from, "secret/")
	if !isSecret {
		if _, err := os.Stat(from); err != nil {
			return github.Credentials{}, fmt.Errorf("--credentials: %w", err)
		}
		return connections.ReadFolder(from)
	}
	c, namespace, err := cluster.connect()
	if err != nil {
		return github.Credentials{}, err
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret); err != nil {
		return github.Credentials{}, fmt.Errorf("--credentials: %w", err)
	}
	return connections.OfSecret(secret)
}

// tokens are what no report may hold, whatever GitHub repeats.
var tokens = regexp.MustCompile(`\b(gh[a-z]_|github_pat_|eyJ)[\w.-]+`)

// redactor hides who and where we are.
func redactor(creds github.Credentials, group string) func(string) string {
	var hidden []string
	if u, err := url.Parse(creds.ConfigURL); err == nil {
		hidden = append(strings.Split(u.Path, "/"), u.Host, u.Hostname(), group)
	}
	hidden = slices.DeleteFunc(hidden, func(name string) bool { return name == "" || name == "github.com" })
	for i := range hidden {
		hidden[i] = regexp.QuoteMeta(hidden[i])
	}
	names := regexp.MustCompile(`(?i)\b(` + strings.Join(hidden, "|") + `)\b`)
	return func(text string) string {
		return tokens.ReplaceAllString(names.ReplaceAllString(text, "NAME"), "TOKEN")
	}
}
