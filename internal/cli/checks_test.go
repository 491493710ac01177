package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-llm/sluice/internal/cli"
)

// pupil answers chats: wrong at first, and right once it was told what is wrong.
type pupil struct {
	mu   sync.Mutex
	sent []string
}

func (p *pupil) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.sent = append(p.sent, string(body))
	p.mu.Unlock()
	text := `{\"age\":\"old\"}`
	if strings.Contains(string(body), "got string, want integer") {
		text = `Sorry.\n\n` + "```" + `json\n{\"age\":36}\n` + "```"
	}
	if !strings.Contains(string(body), `"stream":true`) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, text)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", text)
}

func TestAModelThatIsToldWhatIsWrongAnswersRight(t *testing.T) {
	for name, stream := range map[string]string{"whole": "false", "streamed": "true"} {
		t.Run(name, func(t *testing.T) {
			p := &pupil{}
			server := httptest.NewServer(p)
			defer server.Close()
			dir := t.TempDir()
			t.Chdir(dir)
			t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
			write := func(name, text string) {
				if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write("in.jsonl", `{"custom_id":"a","model":"m","messages":[{"role":"user","content":"How old?"}],"stream":`+stream+`}`)
			write("schema.json", `{"properties":{"age":{"type":"integer"}},"required":["age"]}`)
			sluice := func(args ...string) (int, string) {
				var stdout, stderr bytes.Buffer
				code := cli.Main(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
				return code, stdout.String() + stderr.String()
			}
			run := []string{"run", "--provider", "openai-compatible", "--base-url", server.URL + "/v1", "in.jsonl", "-o", "out.jsonl", "--schema", "schema.json", "--progress", "none"}
			if code, said := sluice(append(run, "--max-attempts", "1")...); code != 3 || len(p.sent) != 1 {
				t.Fatalf("one attempt: exit code %d, sent %q: %s", code, p.sent, said)
			}
			if code, said := sluice(append(run, "--redo", "failed")...); code != 0 || len(p.sent) != 3 {
				t.Fatalf("with feedback: exit code %d, sent %q: %s", code, p.sent, said)
			}
			if want := `{"role":"assistant","content":"{\"age\":\"old\"}"},{"role":"user","content":"Your answer was not accepted: the response does not match the schema: at /age: got string, want integer\n`; !strings.Contains(p.sent[2], want) {
				t.Errorf("sent %s", p.sent[2])
			}
			code, said := sluice("answers", "out.jsonl", "--format", "text")
			if code != 0 || said != "--- a\nSorry.\n\n```json\n{\"age\":36}\n```\n" {
				t.Errorf("exit code %d, answer %q", code, said)
			}
		})
	}
}
