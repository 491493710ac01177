// Command agents has one lead agent and many writers, which share few slots. A writer makes a sentence about a topic, in a loop
// of calls and tools; the lead improves each sentence as it comes, and its calls go first. What a writer came to is kept after
// each turn, so that the same command goes on where one that was interrupted ended. At the end it prints how long the calls of
// each waited for a slot, on average.
//
//	OPENAI_API_KEY=... go run ./agents -model gpt-4.1-mini -slots 3 -enough 6 rain snow hail fog dew frost sleet rime
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
	"github.com/sluice-llm/sluice/provider"
)

func main() {
	model := flag.String("model", "gpt-4.1-mini", "model of all agents")
	slots := flag.Int("slots", 3, "calls that may be open at once")
	enough := flag.Int("enough", 0, "sentences after which the other writers are cancelled; 0 waits for all")
	dir := flag.String("checkpoints", "checkpoints", "directory that keeps what each writer came to")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("usage: agents [flags] TOPIC...")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	store, err := pool.NewFileStore(*dir)
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := sluice.New(sluice.Config{
		Limits:   sluice.Limits{Concurrency: *slots},
		Observer: sluice.ObserverFunc(tell),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Close()
	t, err := newTeam(scheduler, store, *model)
	if err != nil {
		log.Fatal(err)
	}
	sentences, err := t.write(ctx, flag.Args(), *enough)
	t.report(os.Stdout)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range sentences {
		fmt.Println(s)
	}
}

// tell says why nothing is sent for a while.
func tell(e sluice.Event) {
	if e.Type == limits.EventCooldownStarted || e.Type == limits.EventBreaker && !e.Until.IsZero() {
		log.Printf("pause until %s: %v", e.Until.Format(time.TimeOnly), cmp.Or(e.Outcome.Err, errors.New(e.Outcome.Kind.String())))
	}
}

// team is agents that share the slots of a Scheduler.
type team struct {
	agents  *pool.Pool
	base    http.RoundTripper // of all of them: connections are shared as slots are
	model   string
	options []option.RequestOption

	mu    sync.Mutex
	ended []ended
}

// ended is what a member did, and why it was cancelled, if it was.
type ended struct {
	pool.State
	cause error
}

func newTeam(scheduler *sluice.Scheduler, store pool.Store, model string, options ...option.RequestOption) (*team, error) {
	agents, err := pool.New(pool.Config{Scheduler: scheduler, Store: store, MaxQueuePriority: 100})
	if err != nil {
		return nil, err
	}
	return &team{agents: agents, base: provider.NewBase(8), model: model, options: options}, nil
}

// client returns an official client whose calls are the member's.
func (t *team) client(m *pool.Member) (openai.Client, error) {
	p, _ := provider.Lookup("openai")
	limited, err := provider.NewTransport(provider.Config{Scheduler: m, Provider: p, Base: t.base})
	if err != nil {
		return openai.Client{}, err
	}
	return openai.NewClient(append(slices.Clone(t.options), option.WithHTTPClient(limited.Client()))...), nil
}

// errEnough is why writers are cancelled whose sentences nobody waits for any more.
var errEnough = errors.New("there are sentences enough")

// write is the lead. It has a writer for each topic, and returns when there are sentences enough and all writers have ended.
func (t *team) write(parent context.Context, topics []string, enough int) (sentences []string, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	// The lead is registered by hand: it waits for members of Run, and must not have one of the places that they need.
	lead, err := t.agents.Register("lead", pool.MemberConfig{Kind: "lead", Priority: limits.High})
	if err != nil {
		return nil, err
	}
	defer lead.Close()
	defer t.remember(parent, lead)
	client, err := t.client(lead)
	if err != nil {
		return nil, err
	}
	var (
		mu     sync.Mutex
		failed error
		wg     sync.WaitGroup
	)
	for _, topic := range topics {
		wg.Go(func() {
			var draft string
			err := t.agents.Run(ctx, "writer-"+topic, pool.MemberConfig{Kind: "writer"}, func(ctx context.Context, m *pool.Member) (err error) {
				defer t.remember(ctx, m)
				draft, err = t.draft(ctx, m, topic)
				return err
			})
			var sentence string
			if err == nil {
				sentence, err = t.improve(ctx, client, draft)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				if sentences = append(sentences, sentence); len(sentences) == enough {
					cancel(errEnough)
				}
			case context.Cause(ctx) != errEnough:
				failed = cmp.Or(failed, fmt.Errorf("%s: %w", topic, err))
			}
		})
	}
	wg.Wait()
	return sentences, failed
}

// improve is a call of the lead.
func (t *team) improve(ctx context.Context, client openai.Client, draft string) (string, error) {
	turn, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model:    t.model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say this better, in one sentence: " + draft)},
	})
	if err != nil {
		return "", err
	}
	return turn.Choices[0].Message.Content, nil
}

// progress is the checkpoint of a writer.
type progress struct {
	Turns []openai.ChatCompletionMessageParamUnion // of the conversation so far
	Draft string                                   // once it is done
}

// draft is a writer: it goes on calling its model until that asks for no tool any more.
func (t *team) draft(ctx context.Context, m *pool.Member, topic string) (string, error) {
	client, err := t.client(m)
	if err != nil {
		return "", err
	}
	var p progress
	if _, err := m.LoadCheckpoint(&p); errors.Is(err, pool.ErrNoCheckpoint) {
		p.Turns = append(p.Turns, openai.UserMessage("Write one sentence of at most 20 words about "+topic+", and count them."))
	} else if err != nil {
		return "", err
	}
	for p.Draft == "" {
		turn, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: t.model, Messages: p.Turns, Tools: tools()})
		if err != nil {
			return "", err
		}
		said := turn.Choices[0].Message
		p.Turns = append(p.Turns, said.ToParam())
		for _, call := range said.ToolCalls {
			p.Turns = append(p.Turns, openai.ToolMessage(use(call.Function.Name, call.Function.Arguments), call.ID))
		}
		if len(said.ToolCalls) == 0 {
			p.Draft = cmp.Or(said.Content, "…")
		}
		if err := m.SaveCheckpoint(p); err != nil {
			return "", err
		}
	}
	return p.Draft, nil
}

// remember keeps what a member did, as long as it is one.
func (t *team) remember(ctx context.Context, m *pool.Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, ended{m.State(), context.Cause(ctx)})
}

// wait is how long a call waited, on average.
func (e ended) wait() time.Duration { return e.TotalWait / time.Duration(max(1, e.Calls)) }

// report says what each member did, those whose calls waited longest first.
func (t *team) report(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.ended, func(a, b ended) int { return cmp.Compare(b.wait(), a.wait()) })
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "member\tcalls\ttokens\twait\tcancelled")
	for _, e := range t.ended {
		why := ""
		if e.cause != nil {
			why = e.cause.Error()
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%v\t%s\n", e.ID, e.Calls, e.Tokens, e.wait().Round(time.Millisecond), why)
	}
	table.Flush()
}
