package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/cli"
	"github.com/sluice-llm/sluice/internal/parts"
)

func TestPartsSayWhatKeepsThemFromGettingOn(t *testing.T) {
	all := []parts.Status{
		{Account: "acme", Tag: "0123456789ab", State: parts.Merged, Requests: 1, Problem: &batchapi.Problem{Message: "over"}},
		{Account: "acme", Tag: "0123456789ac", State: parts.Submitting, Requests: 5},
	}
	now := time.Now()
	if text := cli.PartsInWords(all, now); text != "2 batches: 1 merged, 1 submitting" {
		t.Errorf("they say %q", text)
	}
	all[1].Problem = &batchapi.Problem{Kind: batchapi.Broken, Message: "503: overloaded"}
	if text := cli.PartsInWords(all, now); !strings.HasSuffix(text, "; the provider says: 503: overloaded") {
		t.Errorf("they say %q", text)
	}
}
