package batch_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// TestABatchThatExpiredWithoutResultsCostsNoTries has more batches expire than a line has tries, and none says what became of its
// requests, as with Gemini.
func TestABatchThatExpiredWithoutResultsCostsNoTries(t *testing.T) {
	files := regexp.MustCompile(`"(output|error)_file_id": ?"[^"]*"`)
	{
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(5))
			cfg, sent := f.viaConfig(t, sim.Config{Latency: -1})
			cfg.Budget.Attempts = 3
			cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := sent.RoundTrip(r)
				if err != nil || r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, "/v1/batches/") || sent.count(batchMade) > 5 {
					return resp, err
				}
				b, err := io.ReadAll(resp.Body)
				text := strings.Replace(files.ReplaceAllString(string(b), `"$1_file_id":null`), `"status":"completed"`, `"status":"expired"`, 1)
				text = strings.Replace(text, `"completed":5`, `"completed":0`, 1)
				resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
				return resp, err
			})
			rep, err := run(t, cfg)
			if err != nil || rep.Done != 5 {
				t.Fatalf("%+v, %v", rep.Report, err)
			}
			for id, r := range f.results(t) {
				if r.Sluice.Attempts != 1 {
					t.Errorf("%s took %d attempts", id, r.Sluice.Attempts)
				}
			}
			if live := sent.count(liveCall); live != 0 || sent.count(batchMade) != 6 {
				t.Errorf("%d live calls, %d batches", live, sent.count(batchMade))
			}
		})
	}
}

// TestPartsOfAnotherProviderAreNotAskedForAtThisOne has a run for one provider, at an address of its own, find parts that are
// pending at another.
func TestPartsOfAnotherProviderAreNotAskedForAtThisOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(5))
		cfg, sent := f.viaConfig(t, hour())
		abandon(t, cfg, 10*time.Minute)
		other := cfg
		other.Provider, _ = provider.Lookup("openai")
		other.BaseURL = "http://another.example"
		other.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			t.Errorf("%s %s is sent, with %v", r.Method, r.URL, r.Header)
			return nil, errors.New("nobody is there")
		})
		_, err := run(t, other)
		if wrong, ok := errors.AsType[*batch.FieldError](err); !ok || wrong.Field != "Provider" || !strings.Contains(err.Error(), "pending at sim") || strings.Contains(err.Error(), "call off") {
			t.Errorf("error %v", err)
		}
		if rep, err := run(t, cfg); err != nil || rep.Done != 5 || sent.count(batchMade) != 1 {
			t.Errorf("%+v, %v", rep.Report, err)
		}
	})
}

// TestBatchesWhoseTableIsGoneAreNotPaidForAgain has the table of pending batches removed, or damaged. The state file does not matter.
func TestBatchesWhoseTableIsGoneAreNotPaidForAgain(t *testing.T) {
	for _, damage := range []func(name string) error{
		os.Remove, func(name string) error { return os.WriteFile(name, []byte("{"), 0o600) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(5))
			cfg, sent := f.viaConfig(t, hour())
			abandon(t, cfg, 10*time.Minute)
			dir := f.out + batch.BatchesSuffix
			table := filepath.Join(dir, "table.json")
			text, err := os.ReadFile(table)
			if err := errors.Join(err, damage(table)); err != nil {
				t.Fatal(err)
			}
			for _, batches := range []*batch.Batches{nil, cfg.Batches} {
				wrong := cfg
				wrong.Batches = batches
				_, err := run(t, wrong)
				_, before := batch.ReadPreview(wrong, func(batch.Request) error { return nil })
				for _, err := range []error{err, before} {
					field, ok := errors.AsType[*batch.FieldError](err)
					of, named := errors.AsType[*batchjob.FileError](err)
					if !ok || field.Field != "Output" || !named || of.Path != table || !strings.Contains(of.Hint(), dir) {
						t.Errorf("%v: error %v", batches, err)
					}
				}
			}
			if err := errors.Join(os.WriteFile(table, text, 0o600), damage(work.StatePath(f.out))); err != nil {
				t.Fatal(err)
			}
			if rep, err := run(t, cfg); err != nil || rep.Done != 5 || sent.count(batchMade) != 1 {
				t.Errorf("%+v, %v, %d batches", rep.Report, err, sent.count(batchMade))
			}
		})
	}
}
