package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	_ "time/tzdata" // as the binary has it

	"github.com/sluice-llm/sluice/internal/cli"
)

// explain runs the command over one line of JSON.
func explainLine(t *testing.T, line string) (out map[string]any, stderr string, code int) {
	t.Helper()
	var stdout, errs bytes.Buffer
	code = cli.Main(t.Context(), []string{"explain", "--jsonl"}, strings.NewReader(strings.Replace(line, "{", `{"now":"2026-03-01T12:00:00Z",`, 1)), &stdout, &errs)
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
			t.Fatalf("%v: %s", err, stdout.String())
		}
	}
	return out, errs.String(), code
}

func TestExplainNamesALineThatIsBroken(t *testing.T) {
	for _, line := range []string{`{`, `[]`, `"x"`, `{"text":5}`, `{"status":"many","text":"x"}`, `{"channel":"phone","text":"x"}`, `{"now":"noon","text":"x"}`,
		`{"headers":{"a":{"b":1}},"text":"x"}`, `{"status":0}`} {
		_, stderr, code := explainLine(t, line)
		if code != 2 || !strings.Contains(stderr, "standard input line 1: ") {
			t.Errorf("%s: exit %d, %q", line, code, stderr)
		}
	}
}

func TestExplainGoesOnAfterALineThatIsTooLong(t *testing.T) {
	const good = `{"text":"529 Overloaded"}` + "\n"
	for name, long := range map[string]string{
		"beyond":  `{"text":"` + strings.Repeat("x", 17<<20) + "\"}\n",
		"by one":  strings.Repeat("x", 16<<20) + "\n",
		"no JSON": strings.Repeat(" ", 40<<20) + "\n",
	} {
		var stdout, stderr bytes.Buffer
		code := cli.Main(t.Context(), []string{"explain", "--jsonl"}, strings.NewReader(good+long+good+strings.TrimSuffix(good, "\n")), &stdout, &stderr)
		if code != 2 || strings.Count(stdout.String(), "overloaded\"") != 3 {
			t.Errorf("%s: exit %d, %q", name, code, stdout.String())
		}
		if want := "standard input line 2: the line is longer than 16 MiB"; !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: %q", name, stderr.String())
		}
	}
}

func TestExplainReadsAFileOfAnEditorThatMarksIt(t *testing.T) {
	if out, stderr, code := explainLine(t, "\ufeff"+`{"text":"529 Overloaded"}`); code != 0 || out["kind"] != "overloaded" {
		t.Errorf("exit %d, %v, %s", code, out, stderr)
	}
}

// Who asks line by line gets each answer before the next question.
func TestExplainAnswersBeforeItReadsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, ask := io.Pipe()
		answers, out := io.Pipe()
		code := make(chan int)
		go func() { code <- cli.Main(t.Context(), []string{"explain", "--jsonl"}, in, out, io.Discard) }()
		lines := bufio.NewReader(answers)
		for _, half := range []string{"", `{"te`} { // of the next line
			fmt.Fprint(ask, `{"text":"529 Overloaded"}`+"\n"+half)
			if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "overloaded") {
				t.Fatal(line, err)
			}
		}
		ask.Close()
		if n := <-code; n != 2 {
			t.Errorf("exit %d of half a line", n)
		}
	})
}

func TestExplainPrintsNoKey(t *testing.T) {
	const key = "sk-proj-abcdefgh0123456789"
	for _, text := range []string{"Incorrect API key provided: " + key, `{"error":{"message":"` + key + `","type":"` + key + `"}}`, "Error: 429 Bearer " + key} {
		line, _ := json.Marshal(map[string]any{"status": 429, "text": text, "headers": map[string]string{"authorization": "Bearer " + key}})
		out, stderr, _ := explainLine(t, string(line))
		if strings.Contains(fmt.Sprint(out, stderr), key) {
			t.Errorf("%s: %v %s", text, out, stderr)
		}
	}
}

func TestExplainShortensLongWordsForPeopleAlone(t *testing.T) {
	long := "Rate limit reached: " + strings.Repeat("please slow down, ", 40) + "sk-proj-0123456789abcdefghijklmnop and wait"
	body := fmt.Sprintf(`{"error":{"message":%q,"type":"rate_limit_error"}}`, long)
	explain := func(args ...string) string {
		var stdout, stderr bytes.Buffer
		if code := cli.Main(t.Context(), append([]string{"explain", "--status", "429"}, args...), strings.NewReader(body), &stdout, &stderr); code != 0 {
			t.Fatalf("exit code %d: %s", code, &stderr)
		}
		return stdout.String()
	}
	want := "\n  said    " + long[:300] + "… (--json has more)\n"
	if said := explain(); !strings.Contains(said, want) || strings.Contains(said, long[:310]) {
		t.Errorf("it says\n%s\nwant %s", said, want)
	}
	if said := explain("--json"); !strings.Contains(said, long[:len(long)-50]) || !strings.Contains(said, "and wait") || strings.Contains(said, "0123456789") {
		t.Errorf("as JSON it says\n%s", said)
	}
}
