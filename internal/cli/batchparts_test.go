package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/cli"
)

func TestPartsSayWhatKeepsThemFromGettingOn(t *testing.T) {
	all := []batch.Part{
		{Account: "acme", Tag: "0123456789ab", State: batchjob.Recorded, Requests: 1, Problem: &batchjob.Problem{Message: "over"}},
		{Account: "acme", Tag: "0123456789ac", State: batchjob.Sent, Requests: 5},
	}
	now := time.Now()
	if text := cli.PartsInWords(all, now); text != "2 batches: 1 recorded, 1 sent" {
		t.Errorf("they say %q", text)
	}
	all[1].Problem = &batchjob.Problem{Kind: batchjob.Broken, Message: "503: overloaded"}
	if text := cli.PartsInWords(all, now); !strings.HasSuffix(text, "; the provider says: 503: overloaded") {
		t.Errorf("they say %q", text)
	}
}
