package batchjob_test

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/provider"
)

// TestStatesOfGemini: both families of words, and operations without any.
func TestStatesOfGemini(t *testing.T) {
	for members, want := range map[string]batchjob.Status{
		`"metadata":{"state":"BATCH_STATE_PENDING"}`:           batchjob.Queued,
		`"metadata":{"state":"JOB_STATE_QUEUED"}`:              batchjob.Queued,
		`"metadata":{"state":"BATCH_STATE_UNSPECIFIED"}`:       batchjob.Queued,
		`"metadata":{"state":"BATCH_STATE_RUNNING"}`:           batchjob.Running,
		`"metadata":{"state":"JOB_STATE_CANCELLING"}`:          batchjob.Cancelling,
		`"metadata":{"state":"JOB_STATE_SUCCEEDED"}`:           batchjob.Completed,
		`"metadata":{"state":"JOB_STATE_PARTIALLY_SUCCEEDED"}`: batchjob.Completed,
		`"metadata":{"state":"BATCH_STATE_CANCELLED"}`:         batchjob.Cancelled,
		`"metadata":{"state":"JOB_STATE_EXPIRED"}`:             batchjob.Expired,
		`"metadata":{"state":"BATCH_STATE_FAILED"}`:            batchjob.Failed,
		`"done":true,"response":{"responsesFile":"files/x"}`:   batchjob.Completed,
		`"done":true,"error":{"code":13,"message":"m"}`:        batchjob.Failed,
		`"done":true,"error":{"code":1,"message":"m"}`:         batchjob.Cancelled,
		`"metadata":{"state":"BATCH_STATE_SOMETHING"}`:         batchjob.Queued,
		`"metadata":{"state":"BATCH_STATE_NEW"},"done":true`:   batchjob.Completed,
	} {
		b, err := serve(t, answer{body: `{"name":"batches/b",` + members + `}`}).api(t, "gemini").Get(t.Context(), "batches/b")
		if b.Status != want || err != nil {
			t.Errorf("%s: %q, want %q (%v)", members, b.Status, want, err)
		}
	}
}

// TestAProblemOfGemini: what can be done about a batch that failed as a whole, and that nothing of the key is kept.
func TestAProblemOfGemini(t *testing.T) {
	for code, want := range map[int]batchjob.ProblemKind{
		3: batchjob.Invalid, 5: batchjob.Invalid, 9: batchjob.Invalid, 8: batchjob.NoRoom, 429: batchjob.NoRoom,
		13: batchjob.Broken, 14: batchjob.Broken, 0: batchjob.Broken, 99: batchjob.Broken, -1: batchjob.Broken,
	} {
		s := serve(t, answer{body: fmt.Sprintf(`{"name":"batches/b","done":true,"metadata":{"state":"BATCH_STATE_FAILED"},`+
			`"error":{"code":%d,"message":"of %s"}}`, code, sentinel)})
		b, err := s.api(t, "gemini").Get(t.Context(), "b")
		if err != nil || b.Problem == nil || b.Problem.Kind != want || strings.Contains(b.Problem.Message, sentinel) {
			t.Errorf("%d: %+v, want %q (%v)", code, b.Problem, want, err)
		}
	}
}

// TestGeminiDeniesWhatIsNotThere: a 403 is about the batch or file if the key lists batches, and about the key if it does not.
func TestGeminiDeniesWhatIsNotThere(t *testing.T) {
	denied := answer{status: http.StatusForbidden,
		body: `{"error":{"code":403,"message":"You do not have permission to access the File x or it may not exist.","status":"PERMISSION_DENIED"}}`}
	api := serve(t, denied, answer{body: `{}`}).api(t, "gemini")
	if _, err := api.Get(t.Context(), "batches/x"); !errors.Is(err, batchjob.ErrUnknown) {
		t.Errorf("with a good key: %v", err)
	}
	api = serve(t, denied, denied).api(t, "gemini")
	if _, err := api.Get(t.Context(), "batches/x"); err == nil || errors.Is(err, batchjob.ErrUnknown) {
		t.Errorf("with a bad key: %v", err)
	}
	api = serve(t, denied, answer{body: `{}`}).api(t, "gemini")
	if err := api.Fetch(t.Context(), "files/x", new(strings.Builder)); !errors.Is(err, batchjob.ErrGone) {
		t.Errorf("a file: %v", err)
	}
}

// TestNoAnswerOfGeminiSaysWhereAFileGoes: the address of an upload keeps to the account's own host, and bears no key.
func TestNoAnswerOfGeminiSaysWhereAFileGoes(t *testing.T) {
	for address, want := range map[string]string{
		"https://elsewhere.invalid/upload/v1beta/files?upload_id=u": "POST /upload/v1beta/files?upload_id=u",
		"https://elsewhere.invalid/upload/v1/files?upload_id=u":     "POST /upload/v1beta/files?upload_id=u",
		"https://elsewhere.invalid/files?upload_id=u":               "",
		"https://elsewhere.invalid/upload/../v1beta/files":          "",
		"":  "",
		":": "",
	} {
		s := serve(t, answer{header: http.Header{"X-Goog-Upload-Url": {address}}}, answer{body: `{"file":{"name":"files/f"}}`})
		file, err := s.api(t, "gemini").Upload(t.Context(), part(provider.GenerateContent, "{}\n", 1))
		calls := s.calls()
		switch {
		case want == "" && (err == nil || len(calls) != 1):
			t.Errorf("%q: %q after %v", address, file, calls)
		case want != "" && (err != nil || file != "files/f" || len(calls) != 2 || calls[1] != want || s.seen[1].header.Get("X-Goog-Api-Key") != ""):
			t.Errorf("%q: %v after %v", address, err, calls)
		}
	}
}

// TestGeminiListsAllPages: a batch is found on whatever page it stands, and a list that goes round ends.
func TestGeminiListsAllPages(t *testing.T) {
	s := serve(t, answer{body: `{"operations":[{"name":"batches/a","metadata":{"displayName":"other"}}],"nextPageToken":"2"}`},
		answer{body: `{"operations":[{"name":"batches/b","metadata":{"displayName":"` + tag + `"}}],"nextPageToken":"2"}`})
	found, err := s.api(t, "gemini").Find(t.Context(), part(provider.GenerateContent, "", 1), time.Now())
	if err != nil || len(found) != 1 || found[0].ID != "batches/b" {
		t.Errorf("found %+v, %v", found, err)
	}
	if want := []string{"GET /v1beta/batches?pageSize=100", "GET /v1beta/batches?pageSize=100&pageToken=2"}; !reflect.DeepEqual(s.calls(), want) {
		t.Errorf("asked %q, want %q", s.calls(), want)
	}
}
