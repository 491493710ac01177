package sim_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

func geminiRequest(i int) string {
	return fmt.Sprintf(`{"contents":[{"parts":[{"text":"question %d"}]}]}`, i)
}

func geminiLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"key":"r-%d","request":%s}`+"\n", i, geminiRequest(i))
	}
	return b.String()
}

// uploadGemini hands over a file in two pieces, and returns its name.
func (c batchClient) uploadGemini(content string) string {
	c.t.Helper()
	begun := c.do("POST", "/upload/v1beta/files", `{"file":{"displayName":"in"}}`, "X-Goog-Api-Key", "k", "X-Goog-Upload-Protocol", "resumable",
		"X-Goog-Upload-Command", "start", "X-Goog-Upload-Header-Content-Type", "application/jsonl")
	to, ours := strings.CutPrefix(begun.header.Get("X-Goog-Upload-Url"), baseURL)
	if !ours {
		c.t.Fatalf("the upload goes to %q", begun.header.Get("X-Goog-Upload-Url"))
	}
	half := len(content) / 2
	active := c.do("POST", to, content[:half], "X-Goog-Upload-Command", "upload", "X-Goog-Upload-Offset", "0")
	equal(c.t, "status of the upload", active.header.Get("X-Goog-Upload-Status"), "active")
	c.status(http.StatusBadRequest, "POST", to, content[half:], "X-Goog-Upload-Command", "upload, finalize", "X-Goog-Upload-Offset", "1")
	file := c.ok("POST", to, content[half:], "X-Goog-Upload-Command", "upload, finalize", "X-Goog-Upload-Offset", strconv.Itoa(half))
	equal(c.t, "size", file.text("file", "sizeBytes"), strconv.Itoa(len(content)))
	equal(c.t, "state", file.text("file", "state"), "ACTIVE")
	return file.text("file", "name")
}

func (c batchClient) createGemini(file string) object {
	c.t.Helper()
	return c.ok("POST", "/v1beta/models/gemini-x:batchGenerateContent", `{"batch":{"display_name":"tag","input_config":{"file_name":"`+file+`"}}}`)
}

func TestGeminiBatchGoesThroughItsStates(t *testing.T) {
	bubble(t, func(t *testing.T, _ context.Context) {
		c := batchesOf(t, sim.Config{Key: "k", Batches: sim.Batches{Latency: 100 * time.Second}})
		c.status(http.StatusForbidden, "GET", "/v1beta/batches", "")
		c = batchesOf(t, sim.Config{Batches: sim.Batches{Latency: 100 * time.Second}})
		file := c.uploadGemini(geminiLines(5))
		b := c.createGemini(file)
		equal(t, "state", b.text("metadata", "state"), "BATCH_STATE_PENDING")
		equal(t, "name", b.text("metadata", "displayName"), "tag")
		time.Sleep(50 * time.Second)
		b = c.ok("GET", "/v1beta/"+b.text("name"), "")
		equal(t, "state", b.text("metadata", "state"), "BATCH_STATE_RUNNING")
		equal(t, "done", b.text("metadata", "batchStats", "successfulRequestCount"), "2")
		time.Sleep(50 * time.Second)
		b = c.ok("GET", "/v1beta/"+b.text("name"), "")
		equal(t, "state", b.text("metadata", "state"), "BATCH_STATE_SUCCEEDED")
		equal(t, "done", b.at("done"), any(true))
		results := b.text("response", "responsesFile")
		equal(t, "results", results, b.text("metadata", "output", "responsesFile"))
		list := c.lines("/download/v1beta/" + results + ":download?alt=media")
		for i, l := range list {
			equal(t, "key", l.text("key"), fmt.Sprintf("r-%d", i))
			equal(t, "request", l.text("response", "responseId"), sim.RequestHash([]byte(geminiRequest(i))))
		}
		equal(t, "lines", len(list), 5)
		equal(t, "listed files", c.ok("GET", "/v1beta/files", "").text("files", 0, "name"), file)
		equal(t, "listed batches", c.ok("GET", "/v1beta/batches", "").text("operations", 0, "name"), b.text("name"))
		c.ok("DELETE", "/v1beta/"+file, "")
		c.status(http.StatusForbidden, "GET", "/v1beta/"+file, "")
		c.ok("DELETE", "/v1beta/"+b.text("name"), "")
		c.status(http.StatusNotFound, "GET", "/v1beta/"+b.text("name"), "")
	})
}

func TestGeminiBatchOfInlineRequests(t *testing.T) {
	bubble(t, func(t *testing.T, _ context.Context) {
		c := batchesOf(t, sim.Config{})
		b := c.ok("POST", "/v1beta/models/gemini-x:batchGenerateContent",
			`{"batch":{"displayName":"tag","inputConfig":{"requests":{"requests":[{"request":`+geminiRequest(1)+`,"metadata":{"key":"a"}},{"request":{}}]}}}}`)
		time.Sleep(2 * time.Second)
		b = c.ok("GET", "/v1beta/"+b.text("name"), "")
		first := []any{"response", "inlinedResponses", "inlinedResponses", 0}
		equal(t, "key", b.text(append(first, "metadata", "key")...), "a")
		equal(t, "answer", b.text(append(first, "response", "responseId")...), sim.RequestHash([]byte(geminiRequest(1))))
		equal(t, "code", b.number("response", "inlinedResponses", "inlinedResponses", 1, "error", "code"), 3)
	})
}
