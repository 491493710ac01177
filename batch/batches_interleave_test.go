package batch_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/sim"
)

// TestAPartIsMergedNoSoonerThanItsLinesAreRecorded looks for the files of the part as each of its lines is recorded.
func TestAPartIsMergedNoSoonerThanItsLinesAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines = 600
		f := newFiles(t, chats(lines))
		cfg, _ := f.viaConfig(t, sim.Config{Batches: sim.Batches{Latency: -1}})
		cfg.Batches.Poll = 10 * time.Millisecond
		var mu sync.Mutex
		most := 0 // files of the part that were seen at once
		cfg.OnResult = func(*work.Result) {
			defer time.Sleep(20 * time.Millisecond) // so that recording takes longer than all else
			mu.Lock()
			defer mu.Unlock()
			files, _ := filepath.Glob(filepath.Join(f.out+batch.BatchesSuffix, "*"))
			text, _ := os.ReadFile(f.out)
			if n := bytes.Count(text, []byte("\n")); len(files) < most && n < lines {
				t.Errorf("the part was merged when %d of its %d lines were recorded", n, lines)
			}
			most = max(most, len(files))
		}
		if rep, err := run(t, cfg); err != nil || rep.Done != lines {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		if most == 0 {
			t.Error("no file of the part was seen")
		}
	})
}

// TestPartsThatAreLostTogetherAreNotSentAgain has many parts lost at the same instant, while the feed looks at what is open.
func TestPartsThatAreLostTogetherAreNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines = 40
		f := newFiles(t, chats(lines))
		cfg, sent := f.viaConfig(t, hour())
		cfg.Provider.Batches.Requests = 1
		abandon(t, cfg, 30*time.Minute)
		made := sent.count(batchMade)
		var mu sync.Mutex
		sends := 0
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				mu.Lock()
				sends++
				mu.Unlock()
			}
			return (&stub{status: 404, answer: `{"error":{"message":"No batch found","type":"invalid_request_error"}}`}).RoundTrip(r)
		})
		for range 10 {
			rep, err := run(t, cfg)
			gone, ok := errors.AsType[*batch.LostError](err)
			if !ok || gone.Lines != made || rep.Left() != lines || sends != 0 {
				t.Fatalf("%d parts: %+v, %v, %d sends", made, rep.Report, err, sends)
			}
		}
	})
}
