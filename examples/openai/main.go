// Command openai asks many questions at once through the official OpenAI client, which knows nothing of rate limits.
// Its HTTP client does: a provider.Transport sends each call when the account has room for it.
//
//	OPENAI_API_KEY=... go run ./openai gpt-4.1-mini "Why is the sky blue?" "Why is grass green?"
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: openai MODEL QUESTION...")
	}
	scheduler, err := sluice.New(sluice.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Close()
	limited, err := httpClient(scheduler)
	if err != nil {
		log.Fatal(err)
	}
	client := openai.NewClient(option.WithHTTPClient(limited))
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
	p, _ := provider.Lookup("openai")
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
func ask(ctx context.Context, client openai.Client, model string, questions []string) []answer {
	answers := make([]answer, len(questions))
	var wg sync.WaitGroup
	for i, q := range questions {
		wg.Go(func() {
			c, err := client.Chat.Completions.New(ctx, params(model, q))
			if err != nil {
				answers[i].err = err
				return
			}
			answers[i].text = c.Choices[0].Message.Content
		})
	}
	wg.Wait()
	return answers
}

// stream asks one question and reads the answer as it comes.
func stream(ctx context.Context, client openai.Client, model, question string) answer {
	var a answer
	s := client.Chat.Completions.NewStreaming(ctx, params(model, question))
	defer s.Close()
	for s.Next() {
		for _, choice := range s.Current().Choices {
			a.text += choice.Delta.Content
		}
	}
	a.err = s.Err()
	return a
}

func params(model, question string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:     model,
		MaxTokens: openai.Int(100),
		Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
	}
}
