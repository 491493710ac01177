package batchjob

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// AppendRequest appends a line: {"key", "request"} (https://ai.google.dev/gemini-api/docs/batch-api). The model stands in the
// address of the batch. A body of Gemini's does not say that it is to be streamed, its address does.
func (g *gemini) AppendRequest(dst []byte, id string, _ provider.Endpoint, body []byte) []byte {
	dst = jsonscan.AppendString(append(dst, `{"key":`...), id)
	return append(appendBody(append(dst, `,"request":`...), body, nil), '}')
}

// ParseResult reads a line of a file of responses, or an answer that stands in the batch itself, whose key is in its metadata
// (batches.py, _InlinedResponse_from_mldev). What failed is "a status object", says the guide, which files have as error
// (https://github.com/googleapis/python-genai/issues/1341).
func (g *gemini) ParseResult(line []byte) (Result, error) {
	var key, metadata, response, failed, status, requestID []byte
	ok := members(line, member{"key", &key}, member{"metadata", &metadata}, member{"response", &response},
		member{"error", &failed}, member{"status", &status})
	if key == nil && metadata != nil {
		ok = ok && members(metadata, member{"key", &key})
	}
	if failed == nil {
		failed = status
	}
	if !ok || text(key) == "" || failed == nil && response == nil {
		return Result{}, senselessLine(line)
	}
	r := Result{ID: text(key), Fate: Answered}
	if failed == nil {
		if !members(response, member{"responseId", &requestID}) {
			return Result{}, senselessLine(line)
		}
		r.Status, r.Body, r.RequestID = http.StatusOK, response, text(requestID)
		return r, nil
	}
	var f rpcStatus
	if json.Unmarshal(failed, &f) != nil {
		return Result{}, senselessLine(line)
	}
	if f.Code == rpcCancelled {
		r.Fate = CalledOff
	}
	r.Status, r.Body = f.http(), append(append([]byte(`{"error":`), failed...), '}')
	return r, nil
}

// rpcStatus is an error as Google has it (https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto).
type rpcStatus struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Its codes, and the statuses of HTTP that go with them
// (https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto).
const (
	rpcCancelled          = 1
	rpcUnknown            = 2
	rpcInvalidArgument    = 3
	rpcDeadlineExceeded   = 4
	rpcNotFound           = 5
	rpcAlreadyExists      = 6
	rpcPermissionDenied   = 7
	rpcResourceExhausted  = 8
	rpcFailedPrecondition = 9
	rpcAborted            = 10
	rpcOutOfRange         = 11
	rpcUnimplemented      = 12
	rpcInternal           = 13
	rpcUnavailable        = 14
	rpcDataLoss           = 15
	rpcUnauthenticated    = 16
)

var rpcHTTP = [...]int{
	rpcCancelled: 499, rpcUnknown: 500, rpcInvalidArgument: 400, rpcDeadlineExceeded: 504, rpcNotFound: 404,
	rpcAlreadyExists: 409, rpcPermissionDenied: 403, rpcResourceExhausted: 429, rpcFailedPrecondition: 400, rpcAborted: 409,
	rpcOutOfRange: 400, rpcUnimplemented: 501, rpcInternal: 500, rpcUnavailable: 503, rpcDataLoss: 500, rpcUnauthenticated: 401,
}

// http is the status of HTTP that goes with the code; 0 is not known. What is a status already, as in the errors of live calls,
// stays so.
func (s rpcStatus) http() int {
	switch {
	case s.Code >= 400 && s.Code < 600:
		return s.Code
	case s.Code > 0 && s.Code < len(rpcHTTP):
		return rpcHTTP[s.Code]
	}
	return 0
}

// problem is why a batch failed as a whole.
func (g *gemini) problem(s rpcStatus) *Problem {
	p := Problem{Kind: Broken, Message: g.words(s.Message, 1000)}
	switch s.http() {
	case http.StatusTooManyRequests:
		p.Kind = NoRoom
	case http.StatusBadRequest, http.StatusNotFound:
		p.Kind = Invalid
	}
	if s.Code != 0 {
		p.Code = fmt.Sprint(s.Code)
	}
	return &p
}
