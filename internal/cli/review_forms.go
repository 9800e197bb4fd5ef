// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/review"
)

// reviewForms are the forms of a review, the default first.
var reviewForms = []string{"text", "markdown", "github", "sarif", "json", "yaml"}

// defaultMarker is what the comment of a review is known by.
const defaultMarker = "corral-review"

var validMarker = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9 ./_-]{0,98}[A-Za-z0-9])?$`)

// write writes one form.
func (o *reviewOptions) write(w io.Writer, form string, r *review.Result) error {
	switch form {
	case "text":
		return report.ReviewText(w, r)
	case "markdown":
		return report.ReviewMarkdown(w, o.marker, r)
	case "github":
		return report.GitHub(w, fromCheckout(o.folder, report.ReviewFindings(r)))
	case "sarif":
		return report.SARIF(w, o.version, fromCheckout(o.folder, report.ReviewFindings(r)))
	}
	return (&format{value: form}).write(w, r)
}

// writeFile writes one form to a file.
func (o *reviewOptions) writeFile(f formFile, r *review.Result) error {
	var b bytes.Buffer
	if err := o.write(&b, f.form, r); err != nil {
		return err
	}
	if err := os.WriteFile(f.file, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the review as %s: %w", f.form, err)
	}
	return nil
}
