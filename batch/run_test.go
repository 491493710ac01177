package batch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

func TestOutputLine(t *testing.T) {
	f := newFiles(t, `{"custom_id":"ä \"1\"\u0001","model":"m","messages":[]}`)
	if _, err := run(t, f.config(t, &stub{answer: strings.ReplaceAll(chatAnswer, `,"`, ",\n  \"")})); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.out)
	if err != nil {
		t.Fatal(err)
	}
	r := f.results(t)["ä \"1\"\x01"]
	want := fmt.Sprintf(`{"id":"%s","custom_id":"ä \"1\"\u0001","response":{"status_code":200,"request_id":"req-1","body":%s},`+
		`"error":null,"sluice":{"input":"%s","attempts":1,"throttles":0,"wait_ms":0,"queued_ms":0,"cooldown_ms":0,"backoff_ms":0,"latency_ms":%d,"input_tokens":5,`+
		`"output_tokens":2,"cost_usd":null,"kind":"ok"}}`+"\n", r.Name, chatAnswer, r.Sluice.Input, r.Sluice.LatencyMS)
	if string(b) != want {
		t.Errorf("line %s\nwant %s", b, want)
	}
	if len(r.Sluice.Input) != 32 || !strings.HasPrefix(r.Name, "batch_req_") {
		t.Errorf("id %q, input %q", r.Name, r.Sluice.Input)
	}
}

func TestTheWaitsOfALineAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(60))
		server := newSim(t, sim.Config{Latency: 1500 * time.Microsecond, Faults: sim.Faults{ServerError: 0.5}, Seed: 1})
		if _, err := run(t, f.config(t, server.Transport())); err != nil {
			t.Fatal(err)
		}
		waited := 0
		for id, r := range f.results(t) {
			s := r.Sluice
			if s.WaitMS != s.QueuedMS+s.CooldownMS+s.BackoffMS {
				t.Errorf("%s: wait_ms %d is not %d + %d + %d", id, s.WaitMS, s.QueuedMS, s.CooldownMS, s.BackoffMS)
			}
			if s.QueuedMS > 0 && s.BackoffMS > 0 {
				waited++
			}
		}
		if waited < 5 {
			t.Errorf("%d lines waited for a slot and before another try, want more", waited)
		}
	})
}

func TestAnswersThatAreNotJSONAreTexts(t *testing.T) {
	f := newFiles(t, chats(1))
	cfg := f.config(t, &stub{status: 400, answer: "<html>\nbad \xff</html>"})
	if rep, err := run(t, cfg); err != nil || rep.Report.Failed != 1 {
		t.Fatalf("failed %d, error %v", rep.Report.Failed, err)
	}
	r := f.results(t)["1"]
	var text string
	if err := json.Unmarshal(r.Response.Body, &text); err != nil || text != "<html>\nbad \ufffd</html>" {
		t.Errorf("body %s: %q, error %v", r.Response.Body, text, err)
	}
}

func TestRequestsCarryTheKeyAndTheHeaders(t *testing.T) {
	f, rt := newFiles(t, `{"model":"gpt-4o","messages":[]}`), &stub{}
	cfg := f.config(t, rt)
	cfg.Provider = provider.Provider{}
	cfg.ExtraHeader = http.Header{"X-Team": {"a"}}
	cfg.Key = func(p provider.Provider) (string, error) { return sentinelKey + "-" + p.Name, nil }
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	h := rt.sent[0].header
	if h.Get("Authorization") != "Bearer "+sentinelKey+"-openai" || h.Get("X-Team") != "a" || rt.sent[0].url != "https://api.openai.com/v1/chat/completions" {
		t.Errorf("sent %s with %v", rt.sent[0].url, h)
	}
	missing := errors.New("OPENAI_API_KEY is not set")
	cfg.Key = func(provider.Provider) (string, error) { return "", missing }
	cfg.Output += "2"
	if _, err := batch.Open(cfg); !errors.Is(err, missing) {
		t.Errorf("Open without a key: %v", err)
	}
}

func TestAnEchoedKeyIsNotRecorded(t *testing.T) {
	for _, status := range []int{200, 400} {
		f := newFiles(t, chats(1))
		cfg := f.config(t, &stub{status: status, answer: strings.Replace(chatAnswer, "yes", "you sent "+sentinelKey, 1)})
		cfg.Key = func(provider.Provider) (string, error) { return sentinelKey, nil }
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(f.out); strings.Contains(string(b), "sentinel") || !strings.Contains(string(b), "you sent ***") {
			t.Errorf("status %d: recorded %s", status, b)
		}
	}
}

func TestARefusedKeyRecordsNothing(t *testing.T) {
	f := newFiles(t, chats(50))
	server := newSim(t, sim.Config{Key: sentinelKey, Latency: -1})
	_, err := run(t, f.config(t, server.Transport()))
	stop, ok := errors.AsType[*work.StoppedError](err)
	if !ok || stop.Kind != sluice.Auth {
		t.Fatalf("error %v, want a *StoppedError of kind auth", err)
	}
	if n := server.Stats().Refused["auth"]; n > 8 {
		t.Errorf("%d calls were refused: nothing may be sent after the first", n)
	}
	if _, err := os.Stat(f.out); err == nil {
		t.Errorf("%d results were recorded", len(f.results(t)))
	}
	state, err := work.LoadState(work.StatePath(f.out))
	if err != nil || state.Status != work.Stopped || state.Total != 50 || state.Done != 0 {
		t.Errorf("state %+v, error %v", state, err)
	}
}

func TestASpentAccountKeepsWhatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(50))
		server := newSim(t, sim.Config{SpentAfter: 20})
		rep, err := run(t, f.config(t, server.Transport()))
		if stop, ok := errors.AsType[*work.StoppedError](err); !ok || stop.Kind != sluice.QuotaExhausted {
			t.Fatalf("error %v, want a *StoppedError of kind quota_exhausted", err)
		}
		done := rep.Done // those that were open when the money was spent are answered
		if done < 20 || done > 28 || rep.Report.Failed != 0 || len(f.results(t)) != done {
			t.Errorf("done %d, failed %d", rep.Done, rep.Report.Failed)
		}
		rep, err = run(t, f.config(t, newSim(t, sim.Config{}).Transport()))
		if err != nil || rep.Already != done || rep.Done != 50-done {
			t.Errorf("afterwards: already %d, done %d, error %v", rep.Already, rep.Done, err)
		}
	})
}

func TestAHostThatNobodyReachesBesideOneThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claude := strings.NewReplacer(`"m"`, `"claude-sonnet-4-5"`, `"messages"`, `"max_tokens":9,"messages"`, `/v1/chat/completions`, `/v1/messages`)
		f := newFiles(t, strings.ReplaceAll(chats(3), `"m"`, `"gpt-4o"`)+claude.Replace(strings.ReplaceAll(chats(9), `_id":"`, `_id":"c`)))
		cfg := f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "api.openai.com" {
				return (&stub{}).RoundTrip(r)
			}
			time.Sleep(time.Second)
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		}))
		cfg.Provider = provider.Provider{}
		_, err := run(t, cfg)
		gone, ok := errors.AsType[*batch.UnreachableError](err)
		if !ok || gone.Recorded != 3 || strings.Contains(gone.Hint(), "nothing") {
			t.Errorf("error %+v, want an *UnreachableError that knows of 3 results", err)
		}
		if state, err := work.LoadState(work.StatePath(f.out)); err != nil || state.Done != 3 || state.Status == work.Completed {
			t.Errorf("state %+v, error %v", state, err)
		}
	})
}

func TestTooManyOpenFilesAreNoFaultOfTheProvider(t *testing.T) {
	full := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	t.Run("for a while: all is done", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(20))
			var tries atomic.Int32
			rep, err := run(t, f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
				if tries.Add(1) <= 8 {
					return nil, full
				}
				return (&stub{}).RoundTrip(r)
			})))
			if err != nil || rep.Done != 20 {
				t.Errorf("done %d, error %v", rep.Done, err)
			}
		})
	})
	t.Run("for good: the run ends, and no item has failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(3))
			rep, err := run(t, f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
				s := &stub{}
				if resp, err := s.RoundTrip(r); strings.Contains(s.sent[0].body, "What is 2?") {
					return resp, err
				}
				return nil, full
			})))
			gone, ok := errors.AsType[*batch.UnreachableError](err)
			if !ok || !errors.Is(err, syscall.EMFILE) || !strings.Contains(gone.Hint(), "open files") || rep.Report.Failed != 0 {
				t.Errorf("failed %d, error %v", rep.Report.Failed, err)
			}
		})
	})
}

func TestAHostThatNobodyReaches(t *testing.T) {
	refused := errors.New("dial tcp: connection refused")
	t.Run("at first: nothing is recorded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, rt := newFiles(t, chats(50)), &stub{err: refused}
			_, err := run(t, f.config(t, rt))
			gone, ok := errors.AsType[*batch.UnreachableError](err)
			if !ok || gone.Hint() == "" || !strings.Contains(err.Error(), "sim.invalid") {
				t.Errorf("error %v, want an *UnreachableError", err)
			}
			if _, err := os.Stat(f.out); err == nil {
				t.Errorf("%d results were recorded", len(f.results(t)))
			}
		})
	})
	t.Run("after an answer, whatever it was: items fail", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(3))
			rep, err := run(t, f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
				s := &stub{status: 400}
				resp, err := s.RoundTrip(r)
				if strings.Contains(s.sent[0].body, "What is 2?") {
					return nil, refused
				}
				return resp, err
			})))
			if err != nil || rep.Kinds[sluice.BadRequest] != 2 || rep.Kinds[sluice.Network] != 1 {
				t.Errorf("kinds %v, error %v", rep.Kinds, err)
			}
		})
	})
	t.Run("later: items fail", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(3))
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				s := &stub{}
				resp, err := s.RoundTrip(r)
				if strings.Contains(s.sent[0].body, "What is 2?") {
					return nil, refused
				}
				return resp, err
			})
			rep, err := run(t, f.config(t, rt))
			if err != nil || rep.Done != 2 || rep.Kinds[sluice.Network] != 1 {
				t.Errorf("done %d, kinds %v, error %v", rep.Done, rep.Kinds, err)
			}
		})
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestStreamsAreRecordedAsWholeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, strings.Join([]string{
			`{"custom_id":"chat","url":"/v1/chat/completions","body":{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}}`,
			`{"custom_id":"unasked","url":"/v1/chat/completions","body":{"model":"m","stream":true,"messages":[{"role":"user","content":"hey"}]}}`,
			`{"custom_id":"responses","url":"/v1/responses","body":{"model":"m","stream":true,"input":"hi"}}`,
			`{"custom_id":"messages","params":{"model":"m","max_tokens":64,"stream":true,"messages":[{"role":"user","content":"hi"}]}}`,
		}, "\n"))
		rep, err := run(t, f.config(t, newSim(t, sim.Config{}).Transport()))
		if err != nil || rep.Done != 4 {
			t.Fatalf("done %d, error %v, results %+v", rep.Done, err, f.results(t))
		}
		for id, field := range map[string]string{"chat": "choices", "unasked": "choices", "responses": "output", "messages": "content"} {
			r := f.results(t)[id]
			var body map[string]json.RawMessage
			if err := json.Unmarshal(r.Response.Body, &body); err != nil || body[field] == nil || r.Sluice.OutputTokens == 0 {
				t.Errorf("%s: %s, error %v", id, r.Response.Body, err)
			}
		}
	})
}

func TestCheckRefusesAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, rt := newFiles(t, chats(2)), &stub{}
		cfg := f.config(t, rt)
		cfg.Check = func(id string, _ provider.Endpoint, body []byte) error {
			if id == "2" && rt.count() < 4 || !json.Valid(body) {
				return errors.New("not the schema")
			}
			return nil
		}
		rep, err := run(t, cfg)
		if err != nil || rep.Done != 2 || rep.Attempts != 4 {
			t.Errorf("done %d with %d attempts, error %v", rep.Done, rep.Attempts, err)
		}
		if r := f.results(t)["2"]; r.Sluice.Attempts < 2 || r.Sluice.InputTokens != 5*r.Sluice.Attempts {
			t.Errorf("result %+v: want the tokens of all attempts", r.Sluice)
		}
	})
}

func TestOneModelsPauseDoesNotStopAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The busy model's lines come first, and are many more than wait in memory.
		const n = 600
		var text strings.Builder
		for i := range 2 * n {
			model := "busy"
			if i >= n {
				model = "free"
			}
			fmt.Fprintln(&text, strings.Replace(chat(i), `"m"`, `"`+model+`"`, 1))
		}
		f := newFiles(t, text.String())
		start := time.Now()
		busy := newSim(t, sim.Config{Storms: []sim.Storm{{From: 0, To: 5 * time.Minute}}}).Transport()
		free := newSim(t, sim.Config{}).Transport()
		cfg := f.config(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			body, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			var head [64]byte
			n, _ := body.Read(head[:])
			if strings.Contains(string(head[:n]), `"busy"`) {
				return busy.RoundTrip(r)
			}
			return free.RoundTrip(r)
		}))
		var freeTook atomic.Int64
		cfg.OnResult = func(r *work.Result) {
			if r.Lane == "free" {
				freeTook.Store(int64(time.Since(start)))
			}
		}
		b, err := batch.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if m, p := b.Models(), b.Progress(); m["busy"] != n || m["free"] != n || p.Total != 2*n || p.Left() != 2*n {
			t.Errorf("models %v, total %d, left %d", m, p.Total, p.Left())
		}
		rep, err := b.Run(context.Background())
		if err != nil || rep.Done != 2*n {
			t.Fatalf("done %d, error %v", rep.Done, err)
		}
		freeDone := time.Duration(freeTook.Load())
		if freeDone > 2*time.Minute || rep.Wall < 5*time.Minute {
			t.Errorf("the free model was done after %v of %v", freeDone, rep.Wall)
		}
	})
}

func TestOneBatchAtATimeWritesAnOutput(t *testing.T) {
	f := newFiles(t, chats(1))
	cfg := f.config(t, &stub{})
	b, err := batch.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = batch.Open(cfg)
	if locked, ok := errors.AsType[*work.LockedError](err); !ok || locked.PID != os.Getpid() {
		t.Errorf("second Open: %v, want a *LockedError of this process", err)
	}
	if rep, err := b.Run(context.Background()); err != nil || rep.Done != 1 {
		t.Errorf("done %d, error %v", rep.Done, err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if rep, err := run(t, cfg); err != nil || rep.Already != 1 {
		t.Errorf("afterwards: already %d, error %v", rep.Already, err)
	}
}

func TestProgressAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(100))
		b, err := batch.Open(f.config(t, newSim(t, sim.Config{Latency: time.Second}).Transport()))
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		spent := errors.New("budget")
		time.AfterFunc(3500*time.Millisecond, func() {
			if p := b.Progress(); p.Done != 24 || p.Total != 100 || p.Left() != 76 || p.Usage.Output == 0 || p.Wall != 3500*time.Millisecond {
				t.Errorf("progress %+v", p)
			}
			b.Stop(spent)
		})
		rep, err := b.Run(context.Background())
		if _, ok := errors.AsType[*work.StoppedError](err); !ok || !errors.Is(err, spent) || rep.Done != 32 || rep.Left() != 68 {
			t.Errorf("done %d, left %d, error %v", rep.Done, rep.Left(), err)
		}
	})
}

func TestARunOfNothingLeavesAnEmptyOutput(t *testing.T) {
	f := newFiles(t, "\n")
	if _, err := run(t, f.config(t, &stub{})); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(f.out + "*"); len(left) != 2 { // with the state
		t.Errorf("left %v", left)
	}
	if info, err := os.Stat(f.out); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info, err)
	}
}
