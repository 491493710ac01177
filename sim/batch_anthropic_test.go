package sim_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

const messageBatches = "/v1/messages/batches"

// version is the header that Anthropic's API asks for.
func version() []string { return []string{"Anthropic-Version", "2023-06-01"} }

func messageParams(i int) string {
	return fmt.Sprintf(`{"model":"claude-x","max_tokens":20,"messages":[{"role":"user","content":"question %d"}]}`, i)
}

// messageRequests is the body that creates a batch of requests with the ids r-0, r-1 and so on.
func messageRequests(n int) string {
	var requests []string
	for i := range n {
		requests = append(requests, fmt.Sprintf(`{"custom_id":"r-%d","params":%s}`, i, messageParams(i)))
	}
	return `{"requests":[` + strings.Join(requests, ",") + `]}`
}

func TestAnthropicBatchGoesThroughItsStates(t *testing.T) {
	bubble(t, func(t *testing.T, _ context.Context) {
		c := batchesOf(t, sim.Config{Batches: sim.Batches{Latency: 100 * time.Second}})
		b := c.ok("POST", messageBatches, messageRequests(6), version()...)
		id := b.text("id")
		equal(t, "type", b.text("type"), "message_batch")
		equal(t, "status", b.text("processing_status"), "in_progress")
		equal(t, "results", b.at("results_url"), nil)
		time.Sleep(99 * time.Second)
		b = c.ok("GET", messageBatches+"/"+id, "", version()...)
		equal(t, "processing until the end", b.number("request_counts", "processing"), 6)
		c.status(http.StatusNotFound, "GET", messageBatches+"/"+id+"/results", "", version()...)
		c.status(http.StatusBadRequest, "DELETE", messageBatches+"/"+id, "", version()...)
		time.Sleep(time.Second)
		b = c.ok("GET", messageBatches+"/"+id, "", version()...)
		equal(t, "status", b.text("processing_status"), "ended")
		equal(t, "succeeded", b.number("request_counts", "succeeded"), 6)
		results, ours := strings.CutPrefix(b.text("results_url"), baseURL)
		equal(t, "results are at the host that was asked", ours, true)
		seen := map[string]bool{}
		for _, l := range c.lines(results, version()...) {
			var i int
			fmt.Sscanf(l.text("custom_id"), "r-%d", &i)
			seen[l.text("custom_id")] = true
			equal(t, "type", l.text("result", "type"), "succeeded")
			equal(t, "request", l.text("result", "message", "id"), "msg_"+sim.RequestHash([]byte(messageParams(i))))
		}
		equal(t, "lines", len(seen), 6)
		equal(t, "deleted", c.ok("DELETE", messageBatches+"/"+id, "", version()...).text("type"), "message_batch_deleted")
		c.status(http.StatusNotFound, "GET", messageBatches+"/"+id, "", version()...)
	})
}

func TestAnthropicBatchThatIsNotDone(t *testing.T) {
	for kind, c := range map[string]sim.Batches{"canceled": {}, "expired": {ExpireEvery: 1}, "errored": {FailEvery: 1}} {
		bubble(t, func(t *testing.T, _ context.Context) {
			c := batchesOf(t, sim.Config{Batches: c})
			path := messageBatches + "/" + c.ok("POST", messageBatches, messageRequests(10), version()...).text("id")
			want := map[string]int{kind: 5, "succeeded": 5}
			time.Sleep(500 * time.Millisecond)
			switch kind {
			case "canceled":
				equal(t, "status", c.ok("POST", path+"/cancel", "", version()...).text("processing_status"), "canceling")
			case "errored":
				want = map[string]int{kind: 10}
			}
			time.Sleep(time.Second)
			b := c.ok("GET", path, "", version()...)
			equal(t, "status", b.text("processing_status"), "ended")
			got := map[string]int{}
			for _, l := range c.lines(path+"/results", version()...) {
				got[l.text("result", "type")]++
			}
			for _, name := range []string{"succeeded", "errored", "canceled", "expired"} {
				equal(t, kind+": results "+name, got[name], want[name])
				equal(t, kind+": counted "+name, b.number("request_counts", name), want[name])
			}
			equal(t, kind+": answered", c.server.Stats().Batches.Answered, want["succeeded"])
		})
	}
}

func TestAnthropicListGoesByPages(t *testing.T) {
	c := batchesOf(t, sim.Config{Key: "sk-any"})
	header := append(version(), "X-Api-Key", "sk-any")
	var ids []string
	for range 5 {
		ids = append(ids, c.ok("POST", messageBatches, messageRequests(1), header...).text("id"))
	}
	slices.Reverse(ids)
	for query, want := range map[string]string{
		"?limit=2": "0 1 more", "?limit=2&after_id=" + ids[1]: "2 3 more", "?limit=2&after_id=" + ids[3]: "4",
		"?limit=2&before_id=" + ids[4]: "2 3 more", "?limit=2&before_id=" + ids[2]: "0 1",
	} {
		page := c.ok("GET", messageBatches+query, "", header...)
		var got []string
		for i := range page["data"].([]any) {
			got = append(got, fmt.Sprint(slices.Index(ids, page.text("data", i, "id"))))
		}
		if page.at("has_more") == any(true) {
			got = append(got, "more")
		}
		equal(t, query, strings.Join(got, " "), want)
	}
	equal(t, "with another key", c.status(http.StatusUnauthorized, "GET", messageBatches, "", version()...).text("error", "type"), "authentication_error")
}
