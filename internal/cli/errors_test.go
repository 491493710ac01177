package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/suite"
)

//go:generate env SLUICE_TEST_WRITE=1 go test -count=1 -run TestReferenceOfErrors .

func TestReferenceOfErrors(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Errors\n\nThe last line of an error is its code.\n\n" +
		"code | exit code | cause | what to do\n---|---|---|---\n")
	for _, e := range fault.Catalogue() {
		fmt.Fprintf(&b, "%s | %d | %s | %s\n", e.Code, e.Exit, e.Cause, strings.TrimSuffix(e.Fix, ", then "+runinfo.SameCommand))
	}
	suite.Generated(t, "../../docs/reference/errors.md", b.String())
}
