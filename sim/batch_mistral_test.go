package sim_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

func mistralBody(i int) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":"question %d"}]}`, i)
}

func mistralLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id":"r-%d","body":%s}`+"\n", i, mistralBody(i))
	}
	return b.String()
}

func mistralCreate(file string) string {
	return `{"input_files":["` + file + `"],"model":"mistral-x","endpoint":"/v1/chat/completions","metadata":{"tag":"t1"}}`
}

func TestMistralJobGoesThroughItsStates(t *testing.T) {
	bubble(t, func(t *testing.T, _ context.Context) {
		c := batchesOf(t, sim.Config{Batches: sim.Batches{Latency: 100 * time.Second}})
		file := c.upload(mistralLines(10))
		equal(t, "sample", file.text("sample_type"), "batch_request")
		b := c.ok("POST", "/v1/batch/jobs", mistralCreate(file.text("id")))
		equal(t, "status", b.text("status"), "QUEUED")
		path := "/v1/batch/jobs/" + b.text("id")
		time.Sleep(50 * time.Second)
		b = c.ok("GET", path, "")
		equal(t, "status", b.text("status"), "RUNNING")
		equal(t, "done", b.number("completed_requests"), 5)
		time.Sleep(50 * time.Second)
		b = c.ok("GET", path, "")
		equal(t, "status", b.text("status"), "SUCCESS")
		equal(t, "succeeded", b.number("succeeded_requests"), 10)
		equal(t, "error file", b.at("error_file"), nil)
		for _, l := range c.lines("/v1/files/" + b.text("output_file") + "/content") {
			var i int
			fmt.Sscanf(l.text("custom_id"), "r-%d", &i)
			equal(t, "request", l.text("response", "body", "id"), "chatcmpl-"+sim.RequestHash([]byte(mistralBody(i))))
			equal(t, "model", l.text("response", "body", "model"), "mistral-x")
		}
		for metadata, want := range map[string]int{`{"tag":"t1"}`: 1, `{"tag":"t2"}`: 0} {
			list := c.ok("GET", "/v1/batch/jobs?page=0&page_size=10&metadata="+url.QueryEscape(metadata), "")
			equal(t, "jobs of "+metadata, list.number("total"), want)
		}
		equal(t, "jobs that run", c.ok("GET", "/v1/batch/jobs?status=RUNNING", "").number("total"), 0)
		equal(t, "files", c.ok("GET", "/v1/files?page=0&page_size=1", "").number("total"), 2)
		equal(t, "deleted", c.ok("DELETE", path, "").at("deleted"), any(true))
		c.status(http.StatusNotFound, "GET", path, "")
	})
}

func TestMistralLinesThatDidNotRunStandInNoFile(t *testing.T) {
	for status, c := range map[string]sim.Batches{"TIMEOUT_EXCEEDED": {ExpireEvery: 1}, "CANCELLED": {}, "FAILED": {FailEvery: 1}} {
		bubble(t, func(t *testing.T, _ context.Context) {
			c := batchesOf(t, sim.Config{Batches: c})
			b := c.ok("POST", "/v1/batch/jobs", mistralCreate(c.upload(mistralLines(10)).text("id")))
			path, want := "/v1/batch/jobs/"+b.text("id"), 5
			switch status {
			case "CANCELLED":
				time.Sleep(400 * time.Millisecond)
				equal(t, "status", c.ok("POST", path+"/cancel", "").text("status"), "CANCELLATION_REQUESTED")
				want = 3
			case "FAILED":
				want = 0
			}
			time.Sleep(2 * time.Second)
			b = c.ok("GET", path, "")
			equal(t, "status", b.text("status"), status)
			equal(t, status+": done", b.number("completed_requests"), want)
			equal(t, "answered", c.server.Stats().Batches.Answered, want)
			if want > 0 {
				equal(t, "lines", len(c.lines("/v1/files/"+b.text("output_file")+"/content")), want)
			}
			equal(t, "told why", b.text("errors", 0, "message") != "", status == "FAILED")
		})
	}
}
