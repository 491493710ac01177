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
