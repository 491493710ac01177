package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
)

// examinee answers the question of each request with its number as JSON. Of every second question the first answer since
// the last kill does not fit the schema.
type examinee struct {
	mu    sync.Mutex
	tries map[int]int
	fit   map[int]int // answers that fit, in all
	conns int         // of which one that is open may still bring a call
	last  string      // whose connection was taken last
}

var examined = regexp.MustCompile(`Question (\d+)\.`)

// ServeHTTP answers as OpenAI's chat does.
func (e *examinee) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	n, _ := strconv.Atoi(string(examined.FindSubmatch(body)[1]))
	e.mu.Lock()
	e.tries[n]++
	fits := n%2 == 0 || e.tries[n] > 1
	e.mu.Unlock()
	time.Sleep(30 * time.Millisecond)
	content := `{\"n\":\"none\"}`
	if fits {
		content = fmt.Sprintf(`{\"n\":%d}`, n)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop",`+
		`"message":{"role":"assistant","content":"%s"}}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`, content)
	e.mu.Lock()
	defer e.mu.Unlock()
	if fits {
		e.fit[n]++
	}
}

// connects counts the connections.
func (e *examinee) connects(c net.Conn, to http.ConnState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch to {
	case http.StateNew:
		e.conns++
		e.last = c.RemoteAddr().String()
	case http.StateClosed:
		e.conns--
	}
}

// schemaBench is a run under a schema, in a process of its own.
type schemaBench struct {
	*examinee
	t        *testing.T
	cmd      []string
	addr     string // of the server
	dir, out string
	good     map[int]int  // when it was looked at last: how often each question was answered well,
	recorded map[int]bool // and which are recorded
}

func newSchemaBench(t *testing.T, items, slots int) *schemaBench {
	t.Helper()
	b := &schemaBench{examinee: &examinee{tries: map[int]int{}, fit: map[int]int{}}, t: t, dir: t.TempDir()}
	server := httptest.NewUnstartedServer(b.examinee)
	server.Config.ConnState = b.connects
	server.Start()
	t.Cleanup(server.Close)
	b.addr = server.Listener.Addr().String()
	in, schema := filepath.Join(b.dir, "in.jsonl"), filepath.Join(b.dir, "schema.json")
	b.out = filepath.Join(b.dir, "out.jsonl")
	var text strings.Builder
	for i := range items {
		fmt.Fprintf(&text, `{"custom_id":"q%d","prompt":"Question %d.","model":"gpt-4o-mini"}`+"\n", i, i)
	}
	for name, content := range map[string]string{in: text.String(), schema: `{"properties":{"n":{"type":"integer"}}}`} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.cmd = []string{"run", "--provider", "openai", "--base-url", server.URL + "/v1", "--concurrency", fmt.Sprint(slots), in, "-o", b.out,
		"--schema", schema}
	return b
}

func (b *schemaBench) start() *run {
	b.t.Helper()
	return launch(b.t, b.dir, "OPENAI_API_KEY", b.cmd...)
}

// settle waits for the connections of a killed run to end, and its calls with them, forgets what was tried, and returns how
// often each question was answered well.
func (b *schemaBench) settle() map[int]int {
	b.t.Helper()
	own, err := net.Dial("tcp", b.addr) // is taken after all those that nobody took yet
	if err != nil {
		b.t.Fatal(err)
	}
	own.Close()
	e := b.examinee
	await(b.t, "calls to end", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.conns == 0 && e.last == own.LocalAddr().String()
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.tries)
	return maps.Clone(e.fit)
}

// judge compares what is recorded now with what was answered, when so many calls may have been cut off since.
func (b *schemaBench) judge(when string, open int) {
	b.t.Helper()
	good, now := b.settle(), examinedLines(b.t, b.out)
	lost := 0
	for n, times := range good {
		switch {
		case b.recorded[n] && times > b.good[n]:
			b.t.Errorf("%s: question %d was recorded, and called again", when, n)
		case !now[n]:
			lost += times - b.good[n]
		}
	}
	for n := range b.recorded {
		if !now[n] {
			b.t.Errorf("%s: the result of question %d is gone", when, n)
		}
	}
	if lost > open {
		b.t.Errorf("%s: %d good answers are not recorded, with at most %d calls in flight", when, lost, open)
	}
	b.good, b.recorded = good, now
}

// TestKillUnderSchema kills runs whose answers are checked, and of which many take a second, corrected try. Only answers
// that fit are recorded, and none is lost or called again.
func TestKillUnderSchema(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel() // it mostly waits
	kills := suite.Size(3, 8)
	items, slots := 30*kills, 8
	b := newSchemaBench(t, items, slots)
	luck := rand.New(rand.NewPCG(5, 6))
	for i := range kills {
		cmd := b.start()
		await(t, "results", func() bool { return len(examinedLines(t, b.out)) >= i*items/kills/2 }, &cmd.out)
		time.Sleep(time.Duration(luck.IntN(150)) * time.Millisecond)
		cmd.Process.Kill() // if it did not end before
		cmd.Wait()
		b.judge(fmt.Sprintf("kill %d", i+1), slots)
		t.Logf("kill %d: %d recorded", i+1, len(b.recorded))
	}
	if said, err := b.start().wait(); err != nil {
		t.Fatalf("last run: %v\n%s", err, said)
	}
	if b.judge("last run", 0); len(b.recorded) != items {
		t.Errorf("%d of %d are recorded", len(b.recorded), items)
	}
}

// examinedLines returns which questions the output has answers to: each once, and one that fits.
func examinedLines(t *testing.T, out string) map[int]bool {
	t.Helper()
	all := map[int]bool{}
	b, _ := os.ReadFile(out)
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			continue // torn by the kill
		}
		var result struct {
			CustomID string `json:"custom_id"`
			Response struct {
				Body struct {
					Choices []struct{ Message struct{ Content string } }
				}
			}
		}
		if err := json.Unmarshal(line, &result); err != nil || len(result.Response.Body.Choices) != 1 {
			t.Fatalf("%v in the output line %s", err, line)
		}
		n, _ := strconv.Atoi(strings.TrimPrefix(result.CustomID, "q"))
		if content := result.Response.Body.Choices[0].Message.Content; all[n] || content != fmt.Sprintf(`{"n":%d}`, n) {
			t.Errorf("question %d has the answer %s, or another one", n, content)
		}
		all[n] = true
	}
	return all
}
