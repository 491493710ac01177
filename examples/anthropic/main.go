// Command anthropic asks many questions at once through the official Anthropic client, which knows nothing of rate
// limits. Its HTTP client does: a provider.Transport sends each call when the account has room for it.
//
//	ANTHROPIC_API_KEY=... go run ./anthropic claude-sonnet-4-5 "Why is the sky blue?" "Why is grass green?"
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: anthropic MODEL QUESTION...")
	}
	scheduler, err := sluice.New(sluice.Config{Charge: limits.ChargeActual})
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Close()
	limited, err := httpClient(scheduler)
	if err != nil {
		log.Fatal(err)
	}
	client := anthropic.NewClient(option.WithHTTPClient(limited))
	for i, a := range ask(context.Background(), client, os.Args[1], os.Args[2:]) {
		if a.err != nil {
			log.Printf("%s: %v", os.Args[2+i], a.err)
			continue
		}
		fmt.Printf("%s\n%s\n\n", os.Args[2+i], a.text)
	}
}

// httpClient returns an HTTP client that keeps to the limits of the scheduler's account.
func httpClient(scheduler *sluice.Scheduler) (*http.Client, error) {
	p, _ := provider.Lookup("anthropic")
	t, err := provider.NewTransport(provider.Config{Scheduler: scheduler, Provider: p})
	if err != nil {
		return nil, err
	}
	return t.Client(), nil
}

// answer is what became of a question.
type answer struct {
	text string
	err  error
}

// ask asks all questions at once.
func ask(ctx context.Context, client anthropic.Client, model string, questions []string) []answer {
	answers := make([]answer, len(questions))
	var wg sync.WaitGroup
	for i, q := range questions {
		wg.Go(func() {
			m, err := client.Messages.New(ctx, params(model, q))
			if err != nil {
				answers[i].err = err
				return
			}
			for _, block := range m.Content {
				answers[i].text += block.Text
			}
		})
	}
	wg.Wait()
	return answers
}

// stream asks one question and reads the answer as it comes.
func stream(ctx context.Context, client anthropic.Client, model, question string) answer {
	var a answer
	s := client.Messages.NewStreaming(ctx, params(model, question))
	defer s.Close()
	for s.Next() {
		a.text += s.Current().Delta.Text
	}
	a.err = s.Err()
	return a
}

func params(model, question string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model:     anthropic.Model(model),
		MaxTokens: 100,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))},
	}
}
