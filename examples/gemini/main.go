// Command gemini asks many questions at once through Google's official client for Gemini, which knows nothing of rate
// limits. Its HTTP client does: a provider.Transport sends each call when the account has room for it.
//
//	GEMINI_API_KEY=... go run ./gemini gemini-2.5-flash "Why is the sky blue?" "Why is grass green?"
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync"

	"google.golang.org/genai"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: gemini MODEL QUESTION...")
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
	ctx := context.Background()
	client, err := genai.NewClient(ctx, &genai.ClientConfig{Backend: genai.BackendGeminiAPI, HTTPClient: limited})
	if err != nil {
		log.Fatal(err)
	}
	for i, a := range ask(ctx, client, os.Args[1], os.Args[2:]) {
		if a.err != nil {
			log.Printf("%s: %v", os.Args[2+i], a.err)
			continue
		}
		fmt.Printf("%s\n%s\n\n", os.Args[2+i], a.text)
	}
}

// httpClient returns an HTTP client that keeps to the limits of the scheduler's account.
func httpClient(scheduler *sluice.Scheduler) (*http.Client, error) {
	p, _ := provider.Lookup("gemini")
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
func ask(ctx context.Context, client *genai.Client, model string, questions []string) []answer {
	answers := make([]answer, len(questions))
	var wg sync.WaitGroup
	for i, q := range questions {
		wg.Go(func() {
			resp, err := client.Models.GenerateContent(ctx, model, genai.Text(q), short())
			if err != nil {
				answers[i].err = err
				return
			}
			answers[i].text = resp.Text()
		})
	}
	wg.Wait()
	return answers
}

// stream asks one question and reads the answer as it comes.
func stream(ctx context.Context, client *genai.Client, model, question string) answer {
	var a answer
	for part, err := range client.Models.GenerateContentStream(ctx, model, genai.Text(question), short()) {
		if err != nil {
			a.err = err
			break
		}
		a.text += part.Text()
	}
	return a
}

// short bounds answers. It leaves HTTPOptions.RetryOptions alone, without which the client does not retry: Sluice does.
func short() *genai.GenerateContentConfig { return &genai.GenerateContentConfig{MaxOutputTokens: 100} }
