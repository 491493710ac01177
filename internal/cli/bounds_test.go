package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/cli"
)

func TestAFileOfManyModelsIsRefusedInFewWords(t *testing.T) {
	var lines strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&lines, `{"model":"model-%04d","messages":[]}`+"\n", i)
	}
	var stderr bytes.Buffer
	code := cli.Main(t.Context(), []string{"plan", "--rpm", "5", "--workload", "-"}, strings.NewReader(lines.String()), io.Discard, &stderr)
	if code != 2 || stderr.Len() > 1000 || !strings.Contains(stderr.String(), "model-0019 (1), and 1,980 others") {
		t.Errorf("exit %d, %.2000s", code, stderr.String())
	}
}

func TestALineThatIsTooLargeToPlanIsNamed(t *testing.T) {
	const lines = `{"model":"m","messages":[]}` + "\n" + `{"model":"m","max_tokens":999999999999,"messages":[]}` + "\n"
	var stderr bytes.Buffer
	code := cli.Main(t.Context(), []string{"plan", "--rpm", "5", "--workload", "-"}, strings.NewReader(lines), io.Discard, &stderr)
	if want := "standard input line 2: 999,999,999,999 tokens are more than the 100,000,000 "; code != 2 || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit %d, %s", code, stderr.String())
	}
}
