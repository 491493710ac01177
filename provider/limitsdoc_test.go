package provider_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

// limitsDocument is docs/limits.md.
func limitsDocument(t *testing.T) string {
	text, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// cited is an address as a link by its host.
func cited(source, date string, doubtful bool) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(source, "https://"), "/")
	text := fmt.Sprintf("[%s](%s), %s", host, source, date)
	if doubtful {
		text += "; doubtful"
	}
	return text
}

// countings is the table of how providers count.
func countings() string {
	var b strings.Builder
	b.WriteString("| provider | note | charged as | cached input | tiers | source |\n|---|---|---|---|---|---|\n")
	for _, p := range provider.Published().All() {
		cached := "does not count"
		if p.CountsCached {
			cached = "counts"
		}
		var tiers []string
		for _, t := range provider.Published().Tiers(p.Name) {
			if n := len(tiers); n == 0 || tiers[n-1] != "`"+t.Tier+"`" {
				tiers = append(tiers, "`"+t.Tier+"`")
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", p.Name, p.Note, p.Charge, cached, strings.Join(tiers, ", "),
			cited(p.Source, p.Date, p.Doubtful))
	}
	return b.String()
}

// numbers is the table of the limits of tiers.
func numbers() string {
	var b strings.Builder
	b.WriteString("| provider | tier | models | limits | note | source |\n|---|---|---|---|---|---|\n")
	for _, p := range provider.Published().All() {
		for _, t := range provider.Published().Tiers(p.Name) {
			var limits []string
			for d, n := range t.Limits.All() {
				if *n > 0 {
					limits = append(limits, d.String()+" "+thousands(*n))
				}
			}
			models := "all"
			if of := t.Families(); len(of) > 0 {
				models = "`" + strings.Join(of, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", p.Name, t.Tier, models, strings.Join(limits, ", "), t.Note,
				cited(t.Source, t.Date, t.Doubtful))
		}
	}
	return b.String()
}

// thousands is a number as documents write it.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func TestTheDocumentedLimitsAreThoseOfTheData(t *testing.T) {
	suite.FullOnly(t)
	tabled(t, "../docs/limits.md", countings())
	tabled(t, "../docs/limits.md", numbers())
}

func TestTheDocumentedHeadersAreThoseThatAreRead(t *testing.T) {
	suite.FullOnly(t)
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `(\\S+)` \\| `(\\S+)` \\| (?:`(\\S+)`)? \\| ").FindAllStringSubmatch(limitsDocument(t), -1)
	forms := provider.HeaderForms()
	if len(rows) != len(forms) {
		t.Fatalf("docs/limits.md has %d forms of headers, and %d are read", len(rows), len(forms))
	}
	for i, f := range forms {
		want := [...]string{f.Dimension.String(), f.Limit, f.Remaining, f.Reset}
		for k, word := range want {
			if !strings.EqualFold(rows[i][k+1], word) {
				t.Errorf("form %d: docs/limits.md has %q for %q", i+1, rows[i][k+1], word)
			}
		}
	}
}

func TestTheDocumentedRefusalsAreOfTheirKinds(t *testing.T) {
	suite.FullOnly(t)
	rows := regexp.MustCompile("(?m)^\\| `([\\w-]+)` \\| (\\d{3}) \\| `(\\{.*\\})` \\| `(\\w+)` \\|$").FindAllStringSubmatch(limitsDocument(t), -1)
	if len(rows) < 20 {
		t.Fatalf("%d refusals, want 20", len(rows))
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, row := range rows {
		p, ok := provider.Lookup(row[1])
		status, err := strconv.Atoi(row[2])
		if !ok || err != nil {
			t.Fatalf("%s %s: %v", row[1], row[2], err)
		}
		v := provider.Classify(p, status, http.Header{}, []byte(`{"error":`+row[3]+`}`), now)
		if v.Kind.String() != row[4] {
			t.Errorf("%s %d %s is %s", p.Name, status, row[3], v.Kind)
		}
		if strings.Contains(row[3], "try again in") && v.Wait <= 0 {
			t.Errorf("%s states a wait that is not read", row[3])
		}
	}
}

func TestTheDocumentedDimensionsAreAll(t *testing.T) {
	suite.FullOnly(t)
	text := limitsDocument(t)
	for d := range (&sluice.Limits{}).All() {
		if !strings.Contains(text, "`"+d.String()+"`") {
			t.Errorf("docs/limits.md says nothing of %s", d)
		}
	}
}
