package batchjob

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
)

// operation is what a batch of Gemini is: one that runs long. Of what it came to, its metadata and its response say the same
// (https://ai.google.dev/api/batch-api).
type operation struct {
	Name     string         `json:"name"`
	Done     bool           `json:"done"`
	Metadata geminiBatch    `json:"metadata"`
	Error    *rpcStatus     `json:"error"`
	Response geminiResponse `json:"response"`
}

// geminiBatch is how it stands.
type geminiBatch struct {
	DisplayName string `json:"displayName"`
	State       string `json:"state"`
	InputConfig struct {
		FileName string `json:"fileName"`
	} `json:"inputConfig"`
	CreateTime any `json:"createTime"` // RFC 3339
	EndTime    any `json:"endTime"`
	BatchStats struct {
		RequestCount           count `json:"requestCount"`
		SuccessfulRequestCount count `json:"successfulRequestCount"`
		FailedRequestCount     count `json:"failedRequestCount"`
	} `json:"batchStats"`
	Output geminiResponse `json:"output"`
}

// geminiResponse is where the answers are: in a file, or, of requests that were not in one, right here, twice nested
// (batches.py, _BatchJobDestination_from_mldev).
type geminiResponse struct {
	ResponsesFile    string      `json:"responsesFile"`
	InlinedResponses inlinedList `json:"inlinedResponses"`
	InlinedEmbed     inlinedList `json:"inlinedEmbedContentResponses"`
}

type inlinedList struct {
	Inlined []json.RawMessage `json:"inlinedResponses"`
}

// inlined are the answers that stand right here.
func (r *geminiResponse) inlined() []json.RawMessage {
	return append(r.InlinedResponses.Inlined, r.InlinedEmbed.Inlined...)
}

// output is where the answers are.
func (o *operation) output() *geminiResponse {
	if out := &o.Metadata.Output; out.ResponsesFile != "" || len(out.inlined()) > 0 {
		return out
	}
	return &o.Response
}

// count is an integer of 64 bits, which protobuf writes as a string
// (https://protobuf.dev/programming-guides/json). What is none is 0.
type count int

// UnmarshalJSON never fails.
func (c *count) UnmarshalJSON(b []byte) error {
	n, err := strconv.Atoi(strings.Trim(string(b), `"`))
	if err != nil || n < 0 {
		n = 0
	}
	*c = count(n)
	return nil
}

// batch is a batch in our words.
func (g *gemini) batch(o *operation) Batch {
	m := &o.Metadata
	b := Batch{ID: o.Name, Tag: m.DisplayName, File: m.InputConfig.FileName, Status: o.state(),
		Requests:  int(m.BatchStats.RequestCount),
		Succeeded: int(m.BatchStats.SuccessfulRequestCount), Failed: int(m.BatchStats.FailedRequestCount),
		Created: instant(m.CreateTime)}
	if !b.Created.IsZero() {
		b.Expires = b.Created.Add(cmp.Or(g.p.Batches.Window, geminiWindow))
	}
	if !b.Status.Ended() {
		return b
	}
	b.Ended = instant(m.EndTime)
	switch out := o.output(); {
	case out.ResponsesFile != "":
		b.Results = []string{out.ResponsesFile}
	case len(out.inlined()) > 0:
		b.Results = []string{o.Name}
	}
	if b.Status == Failed {
		b.Problem = &Problem{Kind: Broken, Message: "the batch failed, and the provider gives no reason"}
		if o.Error != nil {
			b.Problem = g.problem(*o.Error)
		}
	}
	return b
}

// state is a state in our words. The same ones begin with BATCH_ and with JOB_ (_transformers.py, t_job_state; types.py,
// JobState), or are missing while nothing has begun. One that is not known is no end.
func (o *operation) state() Status {
	switch word := strings.TrimPrefix(strings.TrimPrefix(o.Metadata.State, "BATCH_STATE_"), "JOB_STATE_"); word {
	case "PENDING", "QUEUED", "PAUSED":
		return Queued
	case "RUNNING", "UPDATING":
		return Running
	case "CANCELLING":
		return Cancelling
	case "SUCCEEDED", "PARTIALLY_SUCCEEDED":
		return Completed
	case "FAILED":
		return Failed
	case "CANCELLED":
		return Cancelled
	case "EXPIRED":
		return Expired
	}
	switch {
	case o.Error != nil && o.Error.Code == rpcCancelled:
		return Cancelled
	case o.Error != nil && o.Error.Code != 0:
		return Failed
	case o.Done:
		return Completed
	}
	return Queued
}
