package parts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/parts"
	"github.com/sluice-llm/sluice/provider"
)

// through runs so many members through a desk in a bubble, and returns what the run ended with.
func through(b *bench, members int) error {
	d := b.open()
	defer d.Close()
	d.Start(context.Background())
	b.add(d, 0, members)
	return b.merge(d)
}

func TestBatchesWithoutNamesAreToldApartByTheirResults(t *testing.T) {
	for _, reversed := range []bool{false, true} {
		t.Run(fmt.Sprint("reversed ", reversed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.api.nameless, b.api.reversed, b.api.bounds.Requests = true, reversed, 10
				b.api.slower, b.api.lag = time.Hour, 10*time.Second
				left := 2
				b.api.fault = func(op string) fault {
					if op != "create" || left == 0 {
						return none
					}
					left--
					return lostAfter
				}
				if err := through(b, 20); err != nil {
					t.Fatal(err)
				}
				b.api.runAll()
				b.want(20)
				if len(b.api.batches) != 2 {
					t.Errorf("%d batches were made, want 2", len(b.api.batches))
				}
			})
		})
	}
}

func TestPartsThatFindNoRoomWaitForIt(t *testing.T) {
	for _, tokens := range []int{0, 120, 60} {
		t.Run(fmt.Sprint("told ", tokens), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.api.bounds.Requests = 10
				b.api.enqueued, b.api.tells = 120, tokens
				if tokens > 0 {
					b.api.enqueued = tokens
				}
				if err := through(b, 50); err != nil {
					t.Fatal(err)
				}
				b.api.runAll()
				b.want(50)
				if b.api.creates > 20 {
					t.Errorf("%d batches were made for 50 requests that fit by the dozen", b.api.creates)
				}
			})
		})
	}
}

func TestTermsBoundWhatAnAccountHasAtOnce(t *testing.T) {
	for _, test := range []struct {
		name  string
		known provider.BatchAPI
		most  int
		takes time.Duration // at least
	}{
		{"pending requests", provider.BatchAPI{Pending: 30}, 3, 2 * time.Hour},
		{"batches an hour", provider.BatchAPI{PerHour: 1}, 2, 5 * time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.api.bounds.Requests, b.known = 10, test.known
				start := time.Now()
				if err := through(b, 60); err != nil {
					t.Fatal(err)
				}
				b.want(60)
				if took := time.Since(start); took < test.takes {
					t.Errorf("six parts took %v, want at least %v", took, test.takes)
				}
				if b.api.mostOpen > test.most {
					t.Errorf("%d batches were open at once, want at most %d", b.api.mostOpen, test.most)
				}
			})
		})
	}
}

func TestAPartThatIsTooLargeIsSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.refuse = func(_ int, p *batchapi.Part, _ *doubled) *batchapi.Problem {
			if p.Requests <= 3 {
				return nil
			}
			return &batchapi.Problem{Kind: batchapi.TooLarge, Message: "too many"}
		}
		if err := through(b, 20); err != nil {
			t.Fatal(err)
		}
		b.want(20)
		if b.parts != 8 {
			t.Errorf("20 requests were run in %d parts, want 8 of 2 or 3", b.parts)
		}
	})
}

func TestRefusedRequestsAreAnsweredAndTheOthersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.refuse = func(n int, _ *batchapi.Part, _ *doubled) *batchapi.Problem {
			if n > 0 {
				return nil
			}
			return &batchapi.Problem{Kind: batchapi.Invalid, Message: "see lines", Lines: map[int]string{2: "no such model", 4: ""}}
		}
		d := b.open()
		defer d.Close()
		d.Start(context.Background())
		b.add(d, 0, 6)
		<-time.After(time.Minute)
		p := d.Ready()
		if p == nil {
			t.Fatal("no part is ready")
		}
		var got []string
		for r, err := range p.Results() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %d %s", r.Member.ID, r.Status, r.Body))
		}
		want := []string{
			`m2 400 {"error":{"message":"no such model","type":"invalid_request_error"}}`,
			`m4 400 {"error":{"message":"see lines","type":"invalid_request_error"}}`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("results are %q, want %q", got, want)
		}
		if err := d.Merged(p); err != nil {
			t.Fatal(err)
		}
		if err := b.merge(d); err != nil {
			t.Fatal(err)
		}
		if len(b.got) != 4 || b.api.runs["m2"]+b.api.runs["m4"] != 0 {
			t.Errorf("the others have results %v, and were run %v", b.got, b.api.runs)
		}
	})
}

func TestAPartThatCannotRunIsReadyWithoutResults(t *testing.T) {
	for _, test := range []struct {
		problem batchapi.Problem
		creates int
	}{
		{batchapi.Problem{Kind: batchapi.Invalid, Message: "wrong endpoint"}, 1},
		{batchapi.Problem{Kind: batchapi.Broken, Message: "internal error"}, 3},
	} {
		t.Run(string(test.problem.Kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.api.refuse = func(int, *batchapi.Part, *doubled) *batchapi.Problem { return &test.problem }
				d := b.open()
				defer d.Close()
				d.Start(context.Background())
				b.add(d, 0, 3)
				<-time.After(time.Hour)
				p := d.Ready()
				if p == nil {
					t.Fatalf("no part is ready: %+v", d.Status())
				}
				for range p.Results() {
					t.Error("there is a result")
				}
				if s := p.Status(); s.State != parts.Refused || s.Problem == nil || s.Problem.Message != test.problem.Message {
					t.Errorf("the part is %+v with problem %+v", s, s.Problem)
				}
				if b.api.creates != test.creates {
					t.Errorf("it was submitted %d times, want %d", b.api.creates, test.creates)
				}
			})
		})
	}
}

func TestCancelKeepsWhatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.bounds.Requests, b.known.Pending = 10, 10
		d := b.open()
		defer d.Close()
		d.Start(context.Background())
		b.add(d, 0, 30)
		<-time.After(10 * time.Minute)
		if err := d.Cancel(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := b.merge(d); err != nil {
			t.Fatal(err)
		}
		if len(b.got) != 10 || b.api.creates != 1 || b.api.cancels != 1 {
			t.Errorf("%d results of %d batches, %d cancelled; want 10 of 1, 1", len(b.got), b.api.creates, b.api.cancels)
		}
		if time.Since(start) > 5*time.Minute {
			t.Errorf("it took %v", time.Since(start))
		}
		states := []string{}
		for _, s := range d.Status() {
			states = append(states, s.State)
		}
		if want := []string{parts.Merged, parts.Dropped, parts.Dropped}; !slices.Equal(states, want) {
			t.Errorf("states are %q, want %q", states, want)
		}
	})
}

func TestABatchThatTheProviderDoesNotKnowIsLostUntilSomebodyWantsItAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := b.open()
		ctx, cancel := context.WithCancel(context.Background())
		d.Start(ctx)
		b.add(d, 0, 5)
		<-time.After(time.Minute)
		cancel()
		d.Close()
		known := b.api.batches
		b.api.have(nil) // another key's, say
		for range 2 {
			d = b.open()
			d.Start(context.Background())
			var lost *parts.LostError
			if err := b.merge(d); !errors.As(err, &lost) || len(lost.Parts) != 1 || lost.Parts[0].Batch != "batch-1" {
				t.Fatalf("err = %v, want that batch-1 is lost", err)
			}
			d.Close()
		}
		if b.api.creates != 1 {
			t.Fatalf("it was submitted %d times", b.api.creates)
		}
		b.again = true
		b.api.have(known)
		d = b.open()
		d.Start(context.Background())
		<-time.After(time.Minute)
		if b.api.creates != 1 {
			t.Error("a part whose batch is known again was submitted again")
		}
		b.api.have(nil)
		if err := b.merge(d); err != nil {
			t.Fatal(err)
		}
		d.Close()
		if b.want(5); b.api.creates != 2 {
			t.Errorf("it was submitted %d times, want 2", b.api.creates)
		}
	})
}

func TestALostPartIsGivenUpByWhoCancelsAndWantsItAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := b.open()
		d.Start(context.Background())
		b.add(d, 0, 5)
		<-time.After(time.Minute)
		d.Close()
		b.api.have(nil)
		b.again = true
		d = b.open()
		if err := d.Cancel(); err != nil {
			t.Fatal(err)
		}
		d.Start(context.Background())
		if err := b.merge(d); err != nil {
			t.Fatal(err)
		}
		all := d.Status()
		d.Close()
		if len(all) != 1 || all[0].State != parts.Dropped || b.api.creates != 1 {
			t.Errorf("parts are %+v, submitted %d times; want one that is dropped", all, b.api.creates)
		}
	})
}

func TestARefusedKeyEndsItAndPartsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.fault = func(op string) fault {
			if op == "get" {
				return badKey
			}
			return none
		}
		err := through(b, 5)
		var refused *sluice.CallError
		if !errors.As(err, &refused) || refused.Kind != sluice.Auth {
			t.Fatalf("err = %v, want that of the key", err)
		}
		b.api.fault = nil
		d := b.open()
		defer d.Close()
		d.Start(context.Background())
		if err := b.merge(d); err != nil {
			t.Fatal(err)
		}
		b.want(5)
	})
}

func TestNothingIsSubmittedThatCannotBeSaved(t *testing.T) {
	full := errors.New("no space left on device")
	for fails := range 5 {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			saves := 0
			d, err := parts.Open(parts.Config{
				APIs: map[string]batchapi.API{"acme": b.api}, Dir: b.dir,
				Save: func(s []byte) error {
					if saves++; saves > fails {
						return full
					}
					b.saved = s
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			d.Start(context.Background())
			for i := range 5 {
				if _, err := d.Add("acme", memberOf(i), requestOf(i)); err != nil {
					t.Fatal(err)
				}
			}
			if d.Flush() == nil {
				_ = b.merge(d)
			}
			if !errors.Is(d.Err(), full) {
				t.Errorf("after %d saves: err = %v, want that of the disk", fails, d.Err())
			}
			d.Close()
			if made := len(b.api.batches); made > 0 && fails < 4 || len(b.api.files) > 0 && fails < 2 {
				t.Errorf("after %d saves: %d batches and %d files are at the provider", fails, made, len(b.api.files))
			}
			if b.saved == nil {
				return
			}
			d = b.open()
			d.Start(context.Background())
			if err := b.merge(d); err != nil {
				t.Errorf("after %d saves: %v", fails, err)
			}
			d.Close()
			b.want(5)
		})
	}
}

func TestResultsThatAreNotWholeAreFetchedAgain(t *testing.T) {
	for _, cuts := range []int{4, 6} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.api.cut = cuts
			err := through(b, 5)
			if cuts < 6 {
				if err != nil {
					t.Fatal(err)
				}
				b.want(5)
				return
			}
			if err == nil || !strings.Contains(err.Error(), "incomplete") {
				t.Fatalf("err = %v, want that results are missing", err)
			}
			if len(b.got) != 0 {
				t.Errorf("%d results were given of a file that is cut", len(b.got))
			}
			d := b.open()
			defer d.Close()
			d.Start(context.Background())
			if err := b.merge(d); err != nil {
				t.Fatal(err)
			}
			b.want(5)
		})
	}
}

func TestARequestThatNoPartCanHoldIsRefused(t *testing.T) {
	b := newBench(t)
	b.api.bounds.Bytes = 100
	d := b.open()
	defer d.Close()
	var large *parts.TooLargeError
	r := requestOf(1)
	r.Body = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("a", 100))
	if _, err := d.Add("acme", memberOf(1), r); !errors.As(err, &large) || large.Most != 100 {
		t.Errorf("err = %v, want a TooLargeError", err)
	}
	b.api.bounds.Endpoints = []provider.Endpoint{provider.Messages}
	if _, err := d.Add("acme", memberOf(1), requestOf(1)); err == nil {
		t.Error("an endpoint that the Batch API does not have is taken")
	}
	if d.Open() != 0 || b.saved != nil {
		t.Errorf("%d parts are open, and saved is %s", d.Open(), b.saved)
	}
}
