// Command openai_client goes through a gateway with the official OpenAI client, which knows of it by OPENAI_BASE_URL alone.
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

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

const model = "gpt-4o-mini"

var (
	ctx     = context.Background()
	weather = shared.FunctionDefinitionParam{Name: "weather", Parameters: shared.FunctionParameters{"type": "object"}}
	tools   = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(weather)}
)

func main() {
	switch os.Args[1] {
	case "burst":
		var options []option.RequestOption
		if n, err := strconv.Atoi(os.Getenv("MAX_RETRIES")); err == nil {
			options = append(options, option.WithMaxRetries(n))
		}
		burst(openai.NewClient(options...))
	case "early":
		early(openai.NewClient())
	case "cut":
		cut(openai.NewClient())
	default:
		client := openai.NewClient()
		chat(client)
		chatTools(client)
		respond(client)
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

// isArguments expects those of the tool's call.
func isArguments(text string) {
	var arguments struct{ Text string }
	expect(json.Unmarshal([]byte(text), &arguments) == nil, text)
	isSim(arguments.Text)
}

func ask(model string, messages ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: messages}
}

// streamed is an answer that came in parts, and the last of these.
func streamed(client openai.Client, params openai.ChatCompletionNewParams) (openai.ChatCompletion, openai.ChatCompletionChunk) {
	var whole openai.ChatCompletionAccumulator
	s := client.Chat.Completions.NewStreaming(ctx, params)
	var last openai.ChatCompletionChunk
	for s.Next() {
		last = s.Current()
		expect(whole.AddChunk(last), "a chunk that does not fit: ", last.RawJSON())
	}
	must(0, s.Err())
	return whole.ChatCompletion, last
}

func chat(client openai.Client) {
	question := openai.UserMessage("What is the weather in Paris?")
	answer := must(client.Chat.Completions.New(ctx, ask(model, question)))
	isSim(answer.Choices[0].Message.Content)
	expect(answer.Usage.CompletionTokens == 64, answer.Usage)

	params := ask(model, question)
	whole, last := streamed(client, params)
	isSim(whole.Choices[0].Message.Content)
	expect(last.Choices[0].FinishReason == "stop" && whole.Usage.CompletionTokens == 0, last)
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	whole, last = streamed(client, params)
	expect(len(last.Choices) == 0 && whole.Usage.CompletionTokens == 64, last)
}

func chatTools(client openai.Client) {
	params := ask(model, openai.UserMessage("What is the weather in Paris?"))
	params.Tools = tools
	message := must(client.Chat.Completions.New(ctx, params)).Choices[0].Message
	isArguments(message.ToolCalls[0].Function.Arguments)
	whole, _ := streamed(client, params)
	expect(whole.Choices[0].FinishReason == "tool_calls", whole)
	isArguments(whole.Choices[0].Message.ToolCalls[0].Function.Arguments)
	params.Messages = append(params.Messages, message.ToParam(), openai.ToolMessage("rain", message.ToolCalls[0].ID))
	isSim(must(client.Chat.Completions.New(ctx, params)).Choices[0].Message.Content)
}

func respond(client openai.Client) {
	params := responses.ResponseNewParams{Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}}
	stream := func() (final responses.Response, parts string) {
		s := client.Responses.NewStreaming(ctx, params)
		for s.Next() {
			switch e := s.Current(); e.Type {
			case "response.output_text.delta", "response.function_call_arguments.delta":
				parts += e.Delta
			case "response.completed":
				final = e.Response
			}
		}
		must(0, s.Err())
		return final, parts
	}
	isSim(must(client.Responses.New(ctx, params)).OutputText())
	final, text := stream()
	expect(final.OutputText() == text && final.Usage.OutputTokens == 64, final)

	params.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("weather", weather.Parameters, false)}
	call := must(client.Responses.New(ctx, params)).Output[0].AsFunctionCall()
	isArguments(call.Arguments)
	final, text = stream()
	expect(final.Output[0].AsFunctionCall().Arguments == text, final)
	isArguments(text)
	output := responses.ResponseInputItemParamOfFunctionCallOutput("rain")
	output.OfFunctionCallOutput.CallID = openai.String(call.CallID)
	params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
		responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name), output,
	}}
	isSim(must(client.Responses.New(ctx, params)).OutputText())
}

func others(client openai.Client) {
	found := false
	for page := client.Models.ListAutoPaging(ctx); page.Next(); {
		found = found || page.Current().ID == model
	}
	expect(found && must(client.Models.Get(ctx, model)).ID == model, "no model")
	vectors := must(client.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: "text-embedding-3-small", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "other"}},
	})).Data
	expect(len(vectors) == 2 && len(vectors[1].Embedding) == 8, vectors)
}

func failures(client openai.Client) {
	fails := func(err error, status int, code string) *openai.Error {
		var failure *openai.Error
		expect(errors.As(err, &failure) && failure.StatusCode == status && failure.Code == code, err)
		return failure
	}
	question := openai.UserMessage("What is the weather in Paris?")
	complete := func(model string, messages []openai.ChatCompletionMessageParamUnion, options ...option.RequestOption) error {
		_, err := client.Chat.Completions.New(ctx, ask(model, messages...), options...)
		return err
	}
	one := []openai.ChatCompletionMessageParamUnion{question}
	fails(complete("no-such-model", one), 404, "model_not_found")
	_, err := client.Models.Get(ctx, "no-such-model")
	fails(err, 404, "model_not_found")
	_, err = client.Files.List(ctx, openai.FileListParams{})
	fails(err, 404, "not_found")
	fails(complete(model, []openai.ChatCompletionMessageParamUnion{}), 400, "missing_required_parameter")
	fails(complete(model, one, option.WithAPIKey("sk-of-nobody")), 401, "invalid_api_key")

	once := option.WithMaxRetries(0)
	must(0, complete("scarce-gpt", one, once))
	failure := fails(complete("scarce-gpt", one, once), 429, "quota_exhausted")
	after := must(strconv.Atoi(failure.Response.Header.Get("Retry-After")))
	expect(after > 50 && after < 70 && failure.Type == "rate_limit_error", failure, after)
	s := client.Chat.Completions.NewStreaming(ctx, ask("scarce-gpt", question), once)
	expect(!s.Next(), "a stream")
	fails(s.Err(), 429, "quota_exhausted")
}

// broken is the error with which a stream ended, and how many parts came before.
func broken(client openai.Client, messages ...openai.ChatCompletionMessageParamUnion) (n int, err error) {
	s := client.Chat.Completions.NewStreaming(ctx, ask(model, messages...))
	for s.Next() {
		n++
	}
	return n, s.Err()
}

// early is of streams whose head came long before the answer, with comments.
func early(client openai.Client) {
	whole, _ := streamed(client, ask(model, openai.UserMessage("hello")))
	isSim(whole.Choices[0].Message.Content)
	n, err := broken(client, []openai.ChatCompletionMessageParamUnion{}...)
	expect(n == 0 && err != nil && strings.Contains(err.Error(), "upstream_refused"), n, err)
}

// cut is of answers that break off in the middle.
func cut(client openai.Client) {
	n, err := broken(client, openai.UserMessage("hello"))
	expect(n > 5 && err != nil && strings.Contains(err.Error(), "upstream_cut"), n, err)
	_, err = client.Chat.Completions.New(ctx, ask(model, openai.UserMessage("hello")))
	var failure *openai.Error
	expect(errors.As(err, &failure) && failure.StatusCode == 502 && failure.Code == "upstream_failed", err)
}

func burst(client openai.Client) {
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			params := ask(model, openai.UserMessage(fmt.Sprintf("What is special about %d?", i)))
			if i%2 == 0 {
				isSim(must(client.Chat.Completions.New(ctx, params)).Choices[0].Message.Content)
				return
			}
			whole, _ := streamed(client, params)
			isSim(whole.Choices[0].Message.Content)
		})
	}
	wg.Wait()
}
