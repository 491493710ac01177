package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/cli"
)

func TestAWorkloadThatCannotBePlannedIsRefusedBriefly(t *testing.T) {
	var models strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&models, `{"model":"model-%04d","messages":[]}`+"\n", i)
	}
	for name, c := range map[string]struct{ lines, want string }{
		"many models":          {models.String(), "model-0019 (1)"},
		"a line of all tokens": {`{"model":"m","messages":[]}` + "\n" + `{"model":"m","max_tokens":999999999999,"messages":[]}` + "\n", " line 2: "},
	} {
		var stderr bytes.Buffer
		code := cli.Main(t.Context(), []string{"plan", "--rpm", "5", "--workload", "-"}, strings.NewReader(c.lines), io.Discard, &stderr)
		if code != 2 || stderr.Len() > 1000 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: exit %d, %.2000s", name, code, stderr.String())
		}
	}
}
