package cluster_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/provider"
	items "github.com/sluice-llm/sluice/work"
)

func TestACallThatIsHandedOverWhileARunEndsIsTakenBackToo(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		ctx, remote := patient(t), startRemote(t, at)
		ended := make(chan struct{})
		close(ended)
		for n := 1; n <= 2; n++ { // the second comes when the first has been taken back
			if a, err := remote.Do(ctx, itemOf(n, ended)); !errors.Is(err, batch.ErrWithdrawn) {
				t.Fatalf("call %d, which no worker has: %+v, %v", n, a, err)
			}
		}
		if err := remote.Close(ctx, true); err != nil {
			t.Fatal(err)
		}
	})
}

func TestARunThatIsDoneDoesNotWaitForEverForAnEngineThatIsGone(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		remote := startRemote(t, at)
		at.Down(true)
		began := time.Now()
		err := remote.Close(t.Context(), true)
		if err == nil || !strings.Contains(err.Error(), "run the same command again") || time.Since(began) > 15*time.Second {
			t.Errorf("after %v without the engine: %v", time.Since(began), err)
		}
	})
}

// A run that is interrupted while Redis is gone ends after 10 s; the next run has the items that workers had.
func TestARunThatIsInterruptedGivesUpOnAnEngineThatIsGone(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		remote, ended := startRemote(t, at), make(chan struct{})
		w := work(t, open(t, at.Aside()))
		result := make(chan error, 1)
		go func() {
			_, err := remote.Do(t.Context(), itemOf(1, ended))
			result <- err
		}()
		next(t, w)
		time.Sleep(2 * time.Second) // the status is a second old at most
		at.Down(true)
		time.Sleep(5 * time.Second)
		if st := remote.Status(); st.Away == "" || st.InFlight != 1 || st.Waiting != 0 {
			t.Errorf("while the engine is gone: %+v", st)
		}
		close(ended)
		began := time.Now()
		if err := <-result; !errors.Is(err, cluster.ErrClosed) || time.Since(began) > 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := remote.Close(t.Context(), false); err != nil {
			t.Error(err)
		}
	})
}

// Results come from a store that others can write to.
func TestARemoteTrustsNoResult(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		remote, w := startRemote(t, at), work(t, open(t, at))
		good := batch.Answer{Input: itemOf(1, nil).Hash.String(), Kind: sluice.OK, Status: 200, Payload: []byte(`{"choices":[]}`)}
		good.Tally.Attempts = 1
		other := good
		other.Input = items.HashOf([]byte("y")).String()
		for n, c := range []struct{ result, want string }{
			{string(batch.AppendAnswer(nil, &good)), ""},
			{"garbage\x00", "cannot be read"},
			{string(batch.AppendAnswer(nil, &other)), "belongs to another request"},
			{strings.Replace(string(batch.AppendAnswer(nil, &good)), "sluice-answer 1", "sluice-answer 3", 1), "of version sluice-answer 3"},
			{strings.Replace(string(batch.AppendAnswer(nil, &good)), `"kind":"ok"`, `"kind":"auth"`, 1), "none that a worker gives"},
		} {
			go func() { complete(t, w, next(t, w), c.result) }()
			a, err := remote.Do(patient(t), itemOf(n+1, nil))
			if err != nil || (a.Kind == sluice.OK) != (c.want == "") || !strings.Contains(a.Message, c.want) {
				t.Errorf("%q: %+v, %v; want %q", c.result, a, err, c.want)
			}
			remote.Recorded([]int{n + 1})
		}
		a, err := remote.Do(patient(t), &batch.Task{Number: 9, Body: make([]byte, cluster.MaxPayload+1)})
		if err != nil || a.Kind != sluice.BadRequest {
			t.Errorf("an item that is too large: %+v, %v", a, err)
		}
		if err := remote.Close(t.Context(), true); err != nil {
			t.Error(err)
		}
	})
}

func startRemote(t *testing.T, at *cluster.Site) *cluster.Remote {
	t.Helper()
	remote := cluster.NewRemote(cluster.JobConfig{Name: "job"})
	if err := remote.Start(t.Context(), open(t, at)); err != nil {
		t.Fatal(err)
	}
	return remote
}

func itemOf(n int, withdrawn chan struct{}) *batch.Task {
	return &batch.Task{ID: "a", Number: n, Hash: items.HashOf([]byte("x")), Model: "m", Endpoint: provider.ChatCompletions, Body: []byte("{}"), Withdrawn: withdrawn}
}
