package batchjob_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/provider"
)

// forms are the Batch APIs of the registry. Each has the name of a provider.
var forms = func() (all []string) {
	for _, p := range provider.Published().All() {
		if api := p.Batches.API; api != "" && !slices.Contains(all, api) {
			all = append(all, api)
		}
	}
	return all
}()

// every makes each call of an API.
func every(ctx context.Context, api batchjob.API, form string) map[string]error {
	endpoint := provider.ChatCompletions
	switch form {
	case "anthropic":
		endpoint = provider.Messages
	case "gemini":
		endpoint = provider.GenerateContent
	}
	errs := make(map[string]error)
	p := part(endpoint, "{}", 1)
	if form != "anthropic" {
		_, errs["upload"] = api.Upload(ctx, p)
	}
	_, errs["create"] = api.Create(ctx, p, "file-1")
	_, errs["find"] = api.Find(ctx, p, time.Now())
	_, errs["get"] = api.Get(ctx, "batch_1")
	return errs
}

func TestAnswersThatAreNoneAreErrors(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirection was followed") }))
	defer elsewhere.Close()
	for name, do := range map[string]http.HandlerFunc{
		"no JSON":        func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>welcome "+sentinel) },
		"something else": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `["`+sentinel+`"]`) },
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"error":{"message":"`+sentinel+`","type":"server_error"},"data":5}`)
		},
		"a redirection": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"echo": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, r.Header)
		},
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"id":`)
		},
		"packed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			fmt.Fprint(w, batchObject)
		},
		"huge": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"id":"`)
			for range 20 {
				fmt.Fprint(w, strings.Repeat("a", 1<<20))
			}
		},
	} {
		for _, form := range forms {
			s := serve(t)
			for range 10 {
				s.script = append(s.script, answer{do: do})
			}
			for call, err := range every(t.Context(), s.api(t, form), form) {
				failed, ok := errors.AsType[*sluice.CallError](err)
				if !ok || failed.Unsent || failed.Kind == sluice.OK || strings.Contains(err.Error(), sentinel) || len(err.Error()) > 2000 {
					t.Errorf("%s, %s, %s: %v", form, name, call, err)
				}
			}
		}
	}
}

func TestWhatNeverLeftIsUnsent(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, form := range forms {
		p, _ := provider.Lookup(form)
		api, err := batchjob.NewAPI(p, provider.Target{BaseURL: gone.URL, Key: sentinel}, provider.NewBase(1))
		if err != nil {
			t.Fatal(err)
		}
		for call, err := range every(t.Context(), api, form) {
			if failed, ok := errors.AsType[*sluice.CallError](err); !ok || !failed.Unsent || failed.Kind != sluice.Network {
				t.Errorf("%s, %s: %v", form, call, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := api.Get(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", form, err)
		}
	}
}

// What broke off midway was perhaps done: nobody may take it for unsent.
func TestAnAnswerThatNeverCameIsAmbiguous(t *testing.T) {
	for _, form := range forms {
		s := serve(t, answer{do: func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }})
		_, err := s.api(t, form).Create(t.Context(), part(provider.Messages, "{}", 1), "file-1")
		if failed, ok := errors.AsType[*sluice.CallError](err); !ok || failed.Unsent || failed.Kind != sluice.Network || len(s.calls()) != 1 {
			t.Errorf("%s: %v after %v", form, err, s.calls())
		}
	}
}

// brim fails when it is full.
type brim struct{ room int }

var errFull = errors.New("no space left on device")

func (b *brim) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestFetch(t *testing.T) {
	long := strings.Repeat(`{"a":1}`+"\n", 100_000)
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(long)))
		fmt.Fprint(w, long[:300_000])
	}
	chunked := func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, long[:300_000])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	for _, form := range forms {
		var got strings.Builder
		if err := serve(t, answer{body: long}).api(t, form).Fetch(t.Context(), "f", &got); err != nil || got.String() != long {
			t.Errorf("%s: %v, %d bytes", form, err, got.Len())
		}
		for name, do := range map[string]http.HandlerFunc{"cut": cut, "cut in chunks": chunked} {
			got.Reset()
			err := serve(t, answer{do: do}).api(t, form).Fetch(t.Context(), "f", &got)
			failed, ok := errors.AsType[*sluice.CallError](err)
			if !ok || failed.Unsent || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(long, got.String()) {
				t.Errorf("%s, %s: %v", form, name, err)
			}
		}
		err := serve(t, answer{body: long}).api(t, form).Fetch(t.Context(), "f", &brim{1000})
		if _, ok := errors.AsType[*sluice.CallError](err); ok || !errors.Is(err, errFull) {
			t.Errorf("%s: a full disk is %v", form, err)
		}
		got.Reset()
		if err := serve(t, answer{body: `{"m":"` + sentinel + `"}`}).api(t, form).Fetch(t.Context(), "f", &got); err != nil || got.String() != `{"m":"`+strings.Repeat("*", len(sentinel))+`"}` {
			t.Errorf("%s: %v %s", form, err, got.String())
		}
	}
}

func TestNew(t *testing.T) {
	groq, _ := provider.Lookup("vllm")
	if _, err := batchjob.NewAPI(groq, provider.Target{BaseURL: "http://127.0.0.1"}, http.DefaultTransport); !errors.Is(err, batchjob.ErrNone) {
		t.Error(err)
	}
	openai, _ := provider.Lookup("openai")
	if _, err := batchjob.NewAPI(openai, provider.Target{BaseURL: "ftp://x"}, http.DefaultTransport); err == nil || errors.Is(err, batchjob.ErrNone) {
		t.Error(err)
	}
	api, err := batchjob.NewAPI(openai, provider.Target{}, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	if b := api.Limits(); b.Requests != 50_000 || b.Bytes != 200e6 {
		t.Errorf("%+v", b)
	}
}
