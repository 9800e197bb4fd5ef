// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/conformance"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/wording"
)

// conformanceReport is the output of conformance, which users can attach to an issue.
type conformanceReport struct {
	Version  string                `json:"version"`
	Server   string                `json:"server"`
	Scope    string                `json:"scope"`
	Findings []conformance.Finding `json:"findings"`
}

func newConformance(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "conformance --credentials FROM [--url URL]",
		Short: "Check that your GitHub behaves as Corral requires",
		Long: `Create a scale set and a runner on GitHub, test sessions, labels, registrations and lookups, and
delete both again, even after an interrupt. The runner takes no jobs. The command needs the same
permissions as a connection. It takes about four minutes, because it waits until GitHub ends a
session.

--credentials is one of:
  a folder          with the files of a connection's spec.mount: github_token, or github_app_id,
                    github_app_installation_id and github_app_private_key
  secret/NAME       a Secret with these keys
  connection/NAME   a GitHubConnection with its URL, proxy and CA
The command reads Secrets and connections in --namespace with your own permissions.

-o json and -o yaml write a report that you can attach to an issue. It contains GitHub's answers
without URLs, addresses, tokens and quoted names, and without the names in --url and
--runner-group. The exit code is 3 if GitHub does not behave as Corral requires, or if the command
could not verify it.`,
		Example: "  corral conformance --url https://github.com/acme --credentials ./credentials\n" +
			"  corral conformance --credentials connection/acme --namespace ci -o json > report.json",
		Args: cobra.NoArgs,
	}
	config := conformance.Config{Name: "corral-conformance-" + rand.String(6), Options: github.Options{Version: version}, Patience: 3 * time.Minute, LeastHold: time.Second, Retry: 5 * time.Second}
	flags := c.Flags()
	flags.Int64Var(&config.HookID, "hook-id", 0, "ID of the webhook whose deliveries are listed (default: the webhook of the GitHub App)")
	cluster := bindCluster(flags, version, "with secret/ and connection/: ")
	var address, from string
	flags.StringVar(&address, "url", address, "URL of the organization, repository or enterprise, as in a browser (default: the URL of the connection)")
	flags.StringVar(&from, "credentials", from, "folder, secret/NAME or connection/NAME")
	flags.StringVar(&config.Group, "runner-group", config.Group, "runner group (default: GitHub's default group)")
	flags.StringVarP(&cluster.namespace, "namespace", "n", cluster.namespace, "with secret/ and connection/: namespace of the object (default: the namespace of the context)")
	flags.DurationVar(&config.Retry, "retry", config.Retry, "time between two attempts to create a session while the previous one blocks it")
	f := bindFormat(c, "text", "json", "yaml")
	_ = c.MarkFlagRequired("credentials") // the flag exists
	c.RunE = func(c *cobra.Command, _ []string) error {
		if config.Retry < 10*time.Millisecond {
			return fmt.Errorf("--retry: %s is below 10ms", config.Retry)
		}
		var err error
		if config.Credentials, err = credentialsFrom(c.Context(), cluster, from, address); err != nil {
			return fmt.Errorf("--credentials: %w", err)
		}
		return reportConformance(c, f, config)
	}
	return c
}

// reportConformance runs the checks and prints the report. After an interrupt, the checks delete the objects that they created. A second
// interrupt ends the process immediately.
func reportConformance(c *cobra.Command, f *format, config conformance.Config) error {
	target, err := github.ParseURL(config.Credentials.ConfigURL)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	config.OnFinding = func(found conformance.Finding) {
		if f.value == "text" {
			fmt.Fprint(c.OutOrStdout(), texts.Execute("conformance", found))
		}
	}
	r := conformanceReport{Version: config.Options.Version, Server: "github.com", Scope: string(target.Scope)}
	if target.Server {
		r.Server = "GitHub Enterprise Server"
	}
	if r.Findings, err = conformance.Run(ctx, config); err != nil {
		return err
	}
	redact, differs := redactor(config.Credentials.ConfigURL, config.Group), 0
	for i, found := range r.Findings {
		r.Findings[i].Found = redact(found.Found)
		if found.Verdict == conformance.Differs || found.Verdict == conformance.NotShown {
			differs++
		}
	}
	if f.value != "text" {
		err = f.write(c.OutOrStdout(), r)
	}
	if err == nil && differs > 0 {
		err = fmt.Errorf("%d of %d findings %w", differs, len(r.Findings), errDiffers)
	}
	return err
}

// credentialsFrom reads credentials from a folder, a Secret or a connection. If address is not empty, it replaces the connection's URL.
func credentialsFrom(ctx context.Context, cluster *clusterOptions, from, address string) (github.Credentials, error) {
	conn := &v1alpha1.GitHubConnection{Spec: v1alpha1.GitHubConnectionSpec{URL: address}}
	kind, name, isReference := strings.Cut(from, "/")
	if !isReference || kind != "secret" && kind != "connection" {
		folder, err := filepath.Abs(from)
		if err != nil {
			return github.Credentials{}, err
		}
		conn.Spec.Mount = &v1alpha1.CredentialsMount{Name: filepath.Base(folder)}
		return connections.Read(ctx, nil, filepath.Dir(folder), conn)
	}
	c, namespace, err := cluster.connect()
	if err != nil {
		return github.Credentials{}, err
	}
	if kind == "connection" {
		return credentialsOf(ctx, c, types.NamespacedName{Namespace: namespace, Name: name}, address)
	}
	conn.Namespace, conn.Spec.SecretRef = namespace, &v1alpha1.LocalObjectReference{Name: name}
	return connections.Read(ctx, c, "", conn)
}

// credentialsOf reads the credentials of a connection in the cluster. If address is not empty, it replaces the connection's URL.
func credentialsOf(ctx context.Context, c client.Reader, connection types.NamespacedName, address string) (github.Credentials, error) {
	conn := &v1alpha1.GitHubConnection{}
	if err := c.Get(ctx, connection, conn); err != nil {
		return github.Credentials{}, err
	}
	if conn.Spec.Mount != nil {
		return github.Credentials{}, fmt.Errorf("the credentials of connection/%s are mounted into the controller's pod: pass a folder that contains them (--credentials), and --url", connection.Name)
	}
	conn.Spec.URL = cmp.Or(address, conn.Spec.URL)
	return connections.Read(ctx, c, "", conn)
}

// places matches text that must not be in a report: URLs, email addresses, IPv6 and IPv4 addresses, quoted text and host
// names.
var places = regexp.MustCompile(strings.Join([]string{
	`[a-z]+://[^\s"']+`, `\b[\w.+-]+@[\w.-]+`, `\[?[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*\]?(:\d+)?`, `\b\d+\.\d+\.\d+\.\d+\b(:\d+)?`,
	`"[^"]+"`, "`[^`]+`", `\B'[^']+'`, `\b[\w-]+(\.[\w-]+)*\.[a-zA-Z]{2,}\b(:\d+)?`,
}, "|"))

// redactor returns a function that replaces names and addresses of the user in a text by NAME.
func redactor(address, group string) func(string) string {
	named := []string{group}
	if u, err := url.Parse(address); err == nil {
		named = append(named, append(strings.Split(u.Path, "/"), u.Hostname())...)
	}
	names := slices.DeleteFunc(named, func(name string) bool {
		return utf8.RuneCountInString(name) <= 2 || name == "github.com" // short names also occur inside other words; places hides them in quotes and URLs
	})
	ownNames := regexp.MustCompile(`(?i)` + strings.Join(converted(names, regexp.QuoteMeta), "|"))
	ownNames.Longest()
	return func(text string) string {
		text = places.ReplaceAllStringFunc(wording.Redact(text), func(found string) string {
			if found == "github.com" || strings.HasPrefix(found, `"corral-conformance-`) {
				return found
			}
			return "NAME"
		})
		if len(names) > 0 {
			text = ownNames.ReplaceAllString(text, "NAME")
		}
		return text
	}
}
