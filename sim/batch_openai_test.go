package sim_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

func TestOpenAIBatchGoesThroughItsStates(t *testing.T) {
	bubble(t, func(t *testing.T, _ context.Context) {
		c := batchesOf(t, sim.Config{Batches: sim.Batches{Latency: 100 * time.Second}})
		file := c.upload(openaiLines(10))
		equal(t, "object", file.text("object"), "file")
		equal(t, "purpose", file.text("purpose"), "batch")
		b := c.createOpenAI(file.text("id"))
		id := b.text("id")
		equal(t, "metadata", b.text("metadata", "tag"), "t1")
		equal(t, "total while it is validated", b.number("request_counts", "total"), 10)
		states := map[string]bool{}
		var last object
		for range 101 {
			last = c.ok("GET", "/v1/batches/"+id, "")
			states[last.text("status")] = true
			time.Sleep(time.Second)
		}
		for _, want := range []string{"validating", "in_progress", "finalizing", "completed"} {
			equal(t, want, states[want], true)
		}
		equal(t, "states", len(states), 4)
		equal(t, "completed", last.number("request_counts", "completed"), 10)
		equal(t, "took", last.number("completed_at")-last.number("created_at"), 100)
		equal(t, "error file", last.at("error_file_id"), nil)

		inOrder := true
		for place, l := range c.lines("/v1/files/" + last.text("output_file_id") + "/content") {
			var i int
			for i = range 10 {
				if l.text("custom_id") == "r-"+string(rune('0'+i)) {
					break
				}
			}
			inOrder = inOrder && place == i
			equal(t, "status", l.number("response", "status_code"), 200)
			equal(t, "request", l.text("response", "body", "id"), "chatcmpl-"+sim.RequestHash([]byte(openaiBody(i))))
		}
		equal(t, "results are in the order of the requests", inOrder, false)
	})
}

func TestOpenAIBatchIsCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, _ context.Context) {
		c := batchesOf(t, sim.Config{Batches: sim.Batches{Latency: 100 * time.Second}})
		path := "/v1/batches/" + c.createOpenAI(c.upload(openaiLines(80)).text("id")).text("id")
		equal(t, "answered or to be", c.server.Stats().Batches.Answered, 80)
		time.Sleep(50 * time.Second)
		equal(t, "status", c.ok("POST", path+"/cancel", "").text("status"), "cancelling")
		time.Sleep(10 * time.Second)
		b := c.ok("GET", path, "")
		equal(t, "status", b.text("status"), "cancelled")
		equal(t, "cancelling for", b.number("cancelled_at")-b.number("cancelling_at"), 10)
		equal(t, "done", len(c.lines("/v1/files/"+b.text("output_file_id")+"/content")), 40)
		undone := c.lines("/v1/files/" + b.text("error_file_id") + "/content")
		equal(t, "undone", len(undone), 40)
		equal(t, "code", undone[0].text("error", "code"), "batch_cancelled")
		equal(t, "answered", c.server.Stats().Batches.Answered, 40)
		equal(t, "paid", len(c.server.Stats().Paid), 40)
		c.status(http.StatusConflict, "POST", path+"/cancel", "")
	})
}

func TestOpenAIListsGoByPages(t *testing.T) {
	bubble(t, func(t *testing.T, _ context.Context) {
		c := batchesOf(t, sim.Config{Batches: sim.Batches{Latency: -1}})
		var files, batches []string
		for range 5 {
			files = append(files, c.upload(openaiLines(1)).text("id"))
			batches = append(batches, c.createOpenAI(files[len(files)-1]).text("id"))
			time.Sleep(time.Second)
		}
		equal(t, "repeated", c.server.Stats().Batches.Repeated, 4)
		slices.Reverse(batches) // the newest comes first
		for path, want := range map[string][]string{"/v1/files?purpose=batch&order=asc&limit=2": files, "/v1/batches?limit=2": batches} {
			var got []string
			for after := ""; ; {
				page := c.ok("GET", path+after, "")
				for i := range page["data"].([]any) {
					got = append(got, page.text("data", i, "id"))
				}
				if page.at("has_more") != any(true) {
					break
				}
				after = "&after=" + page.text("last_id")
			}
			equal(t, path, strings.Join(got, " "), strings.Join(want, " "))
		}
		equal(t, "files with the results", len(c.ok("GET", "/v1/files", "")["data"].([]any)), 10)
		c.ok("DELETE", "/v1/files/"+files[0], "")
		c.status(http.StatusNotFound, "GET", "/v1/files/"+files[0]+"/content", "")
		equal(t, "files after one is deleted", len(c.ok("GET", "/v1/files", "")["data"].([]any)), 9)
		c.status(http.StatusNotFound, "GET", "/v1/batches/batch_none", "")
		c.status(http.StatusNotFound, "POST", "/v1/batches", openaiCreate("file-none"))
	})
}
