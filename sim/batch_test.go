package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

// batchClient speaks to the Batch APIs of a server, in process.
type batchClient struct {
	t      testing.TB
	server *sim.Server
}

func batchesOf(t testing.TB, c sim.Config) batchClient {
	t.Helper()
	return batchClient{t, serve(t, c)}
}

// do makes a call; the headers are pairs.
func (c batchClient) do(method, path, body string, header ...string) reply {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, baseURL+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return sendRequest(c.server, r, body)
}

// object is an answer that is a JSON object.
type object map[string]any

// ok makes a call that must succeed.
func (c batchClient) ok(method, path, body string, header ...string) object {
	c.t.Helper()
	return c.status(http.StatusOK, method, path, body, header...)
}

// status makes a call that must be answered so.
func (c batchClient) status(want int, method, path, body string, header ...string) object {
	c.t.Helper()
	r := c.do(method, path, body, header...)
	if r.err != nil || r.status != want {
		c.t.Fatalf("%s %s: status %d, want %d (%v): %.400s", method, path, r.status, want, r.err, r.body)
	}
	var v object
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		c.t.Fatalf("%s %s: %v in %.400s", method, path, err, r.body)
	}
	return v
}

// at is what a path of members leads to.
func (o object) at(path ...any) any {
	var v any = map[string]any(o)
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

func (o object) text(path ...any) string {
	text, _ := o.at(path...).(string)
	return text
}

func (o object) number(path ...any) int {
	n, _ := o.at(path...).(float64)
	return int(n)
}

// upload hands over a file for OpenAI's API, and returns its object.
func (c batchClient) upload(content string) object {
	c.t.Helper()
	body, kind := form(c.t, content)
	return c.ok("POST", "/v1/files", body, "Content-Type", kind)
}

// form is a file as a form.
func form(t testing.TB, content string) (body, kind string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	w.WriteField("purpose", "batch") // writes to memory: as the next
	file, err := w.CreateFormFile("file", "in.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(file, content)
	w.Close()
	return b.String(), w.FormDataContentType()
}

// openaiLines are requests with the ids r-0, r-1 and so on.
func openaiLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id":"r-%d","method":"POST","url":"/v1/chat/completions","body":%s}`+"\n", i, openaiBody(i))
	}
	return b.String()
}

func openaiBody(i int) string { return chatBody(fmt.Sprintf("question %d ", i), 10, 0) }

// createOpenAI creates a batch from a file.
func (c batchClient) createOpenAI(file string) object {
	c.t.Helper()
	return c.ok("POST", "/v1/batches", openaiCreate(file))
}

func openaiCreate(file string) string {
	return `{"input_file_id":"` + file + `","endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"tag":"t1"}}`
}

// runOpenAI uploads lines, creates a batch from them and lets it end.
func (c batchClient) runOpenAI(lines string) object {
	c.t.Helper()
	b := c.createOpenAI(c.upload(lines).text("id"))
	time.Sleep(2 * time.Second)
	return c.ok("GET", "/v1/batches/"+b.text("id"), "")
}

// lines are the objects of a file of results.
func (c batchClient) lines(path string, header ...string) []object {
	c.t.Helper()
	r := c.do("GET", path, "", header...)
	if r.err != nil || r.status != http.StatusOK {
		c.t.Fatalf("%s: status %d (%v): %.300s", path, r.status, r.err, r.body)
	}
	return parseLines(c.t, r.body)
}

func parseLines(t testing.TB, text string) []object {
	t.Helper()
	var list []object
	for line := range strings.Lines(text) {
		var v object
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v in %.300s", err, line)
		}
		list = append(list, v)
	}
	return list
}
