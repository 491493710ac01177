package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/plan"
)

// FuzzLengths: a table gives calls whose lengths are none below zero, or an error that names it.
func FuzzLengths(f *testing.F) {
	for _, seed := range []string{
		"", "input_tokens\n", "input_tokens,output_tokens\n1,2\n3,\n", "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n1,2,3\r\n",
		"input_tokens\n\"1\n", "a,b\n1,2", "Prompt Tokens,max-tokens,cached_tokens\n 7 ,8,9\n", "input_tokens\n-1", "input_tokens\n1,2\n",
		"input_tokens\n99999999999999999999", "\"", "input_tokens\n\"\n\n1\"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parseLengths("trace.csv", strings.NewReader(text))
		if err != nil {
			e, ok := errors.AsType[*exitError](err)
			if !ok || e.code != exitUsage || e.hint == "" || !strings.HasPrefix(e.Error(), "trace.csv") {
				t.Fatalf("%#v", err)
			}
			return
		}
		for _, c := range w.calls {
			if min(c.Input, c.Cached, c.MaxTokens, c.Output-plan.NoOutput) < 0 {
				t.Fatalf("%+v", c)
			}
		}
	})
}
