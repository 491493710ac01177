// Command anthropic_client goes through a gateway with the official Anthropic client, which knows of it by ANTHROPIC_BASE_URL
// alone.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

const model = "claude-haiku-4-5"

var ctx = context.Background()

func main() {
	switch os.Args[1] {
	case "burst":
		var options []option.RequestOption
		if n, err := strconv.Atoi(os.Getenv("MAX_RETRIES")); err == nil {
			options = append(options, option.WithMaxRetries(n))
		}
		burst(anthropic.NewClient(options...))
	case "early":
		early(anthropic.NewClient())
	case "cut":
		cut(anthropic.NewClient())
	default:
		client := anthropic.NewClient()
		messages(client)
		tools(client)
		others(client)
		failures(client)
	}
	fmt.Println("done")
}

func expect(ok bool, what ...any) {
	if !ok {
		log.Fatal("not as expected: ", what)
	}
}

// must is a value that came without an error.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func isSim(text string) { expect(strings.HasPrefix(text, "sim:"), text) }

func ask(text string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: model, MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}
}

// streamed is an answer that came in parts.
func streamed(client anthropic.Client, params anthropic.MessageNewParams) (whole anthropic.Message) {
	s := client.Messages.NewStreaming(ctx, params)
	for s.Next() {
		must(0, whole.Accumulate(s.Current()))
	}
	must(0, s.Err())
	return whole
}

func messages(client anthropic.Client) {
	for _, answer := range []anthropic.Message{*must(client.Messages.New(ctx, ask("hello"))), streamed(client, ask("hello"))} {
		isSim(answer.Content[0].Text)
		expect(answer.Usage.OutputTokens == 64 && answer.StopReason == "end_turn", answer.RawJSON())
	}
}

func tools(client anthropic.Client) {
	params := ask("What is the weather in Paris?")
	params.Tools = []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{}, "weather")}
	answer := *must(client.Messages.New(ctx, params))
	for _, answer := range []anthropic.Message{answer, streamed(client, params)} {
		var input struct{ Text string }
		expect(json.Unmarshal(answer.Content[0].Input, &input) == nil && answer.StopReason == "tool_use", answer.RawJSON())
		isSim(input.Text)
	}
	result := anthropic.NewUserMessage(anthropic.NewToolResultBlock(answer.Content[0].ID, "rain", false))
	params.Messages = append(params.Messages, answer.ToParam(), result)
	isSim(must(client.Messages.New(ctx, params)).Content[0].Text)
}

func others(client anthropic.Client) {
	found := false
	for page := client.Models.ListAutoPaging(ctx, anthropic.ModelListParams{}); page.Next(); {
		found = found || page.Current().ID == model
	}
	expect(found && must(client.Models.Get(ctx, model, anthropic.ModelGetParams{})).ID == model, "no model")
	counted := must(client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{
		Model: model, Messages: ask("What is the weather in Paris?").Messages,
	}))
	expect(counted.InputTokens == 8, counted.RawJSON())
}

func failures(client anthropic.Client) {
	fails := func(err error, status int, kind string) *anthropic.Error {
		var failure *anthropic.Error
		expect(errors.As(err, &failure) && failure.StatusCode == status && string(failure.Type()) == kind, err)
		return failure
	}
	create := func(model anthropic.Model, options ...option.RequestOption) error {
		params := ask("hello")
		params.Model = model
		_, err := client.Messages.New(ctx, params, options...)
		return err
	}
	fails(create("no-such-model"), 404, "not_found_error")
	_, err := client.Models.Get(ctx, "no-such-model", anthropic.ModelGetParams{})
	fails(err, 404, "not_found_error")
	_, err = client.Messages.Batches.List(ctx, anthropic.MessageBatchListParams{})
	fails(err, 404, "not_found_error")
	_, err = client.Messages.New(ctx, anthropic.MessageNewParams{Model: model, MaxTokens: 1, Messages: []anthropic.MessageParam{}})
	fails(err, 400, "invalid_request_error")
	fails(create(model, option.WithAPIKey("sk-ant-of-nobody")), 401, "authentication_error")

	once := option.WithMaxRetries(0)
	must(0, create("scarce-claude", once))
	failure := fails(create("scarce-claude", once), 429, "rate_limit_error")
	after := must(strconv.Atoi(failure.Response.Header.Get("Retry-After")))
	expect(after > 50 && after < 70 && failure.Response.Header.Get("X-Sluice-Error") == "quota_exhausted", failure, after)
	params := ask("hello")
	params.Model = "scarce-claude"
	s := client.Messages.NewStreaming(ctx, params, once)
	expect(!s.Next(), "a stream")
	fails(s.Err(), 429, "rate_limit_error")
}

// broken is the error with which a stream ended, and how many parts came before.
func broken(client anthropic.Client, messages []anthropic.MessageParam) (n int, err error) {
	s := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{Model: model, MaxTokens: 100, Messages: messages})
	for s.Next() {
		n++
	}
	return n, s.Err()
}

// early is of streams whose head came long before the answer, with comments.
func early(client anthropic.Client) {
	whole := streamed(client, ask("hello"))
	isSim(whole.Content[0].Text)
	n, err := broken(client, []anthropic.MessageParam{})
	expect(n == 0 && err != nil && strings.Contains(err.Error(), "upstream_refused"), n, err)
}

// cut is of answers that break off in the middle.
func cut(client anthropic.Client) {
	n, err := broken(client, ask("hello").Messages)
	expect(n > 5 && err != nil && strings.Contains(err.Error(), "upstream_cut"), n, err)
	_, err = client.Messages.New(ctx, ask("hello"))
	var failure *anthropic.Error
	expect(errors.As(err, &failure) && failure.StatusCode == 502, err)
}

func burst(client anthropic.Client) {
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			params := ask(fmt.Sprintf("What is special about %d?", i))
			if i%2 == 0 {
				isSim(must(client.Messages.New(ctx, params)).Content[0].Text)
				return
			}
			whole := streamed(client, params)
			isSim(whole.Content[0].Text)
		})
	}
	wg.Wait()
}
