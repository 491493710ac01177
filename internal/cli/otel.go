package cli

import (
	"context"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/internal/version"
	"github.com/sluice-llm/sluice/provider"
)

// otelShutdown is how long the end of a run waits for a collector to take what is left.
const otelShutdown = 5 * time.Second

// openOTel begins to export by OpenTelemetry where the environment asks for it. The run goes on without where it asks for
// what there is not: the variables may be meant for other programs.
func (w *watch) openOTel(ctx context.Context) {
	for _, secret := range telemetry.OTelSecrets() {
		w.s.Hide(secret)
	}
	o, err := telemetry.NewOTel(ctx, telemetry.OTelConfig{Version: version.Read().Version, Service: w.service, Warn: w.s.Warn})
	if err != nil {
		w.s.Errorf("sluice: warning: OpenTelemetry export is off: %s\n", err)
		w.s.Errorf("hint: correct the variable, or set OTEL_SDK_DISABLED=true\n")
		return
	}
	if w.otel = o; o != nil {
		otel.SetLogger(logr.Discard())
		otel.SetErrorHandler(otel.ErrorHandlerFunc(o.Warn))
	}
}

// closeOTel sends what is left.
func (w *watch) closeOTel() {
	if w.otel == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), otelShutdown)
	defer cancel()
	w.otel.Shutdown(ctx)
}

// service says whom the calls of a lane go to: the provider whose address the account's name begins with, or else the one
// of the flags, or that of the model.
func (w *watch) service(account, lane string) telemetry.Service {
	a := w.present()
	var p provider.Provider
	if a != nil {
		p, _ = a.Of(lane) // without a name, where nobody knows
		if base, _, ok := strings.Cut(account, "#"); ok && (a.Config.Provider == "" || a.Upstreams() != nil) {
			for _, known := range a.Settings.Registry.All() {
				if known.BaseURL == base {
					p = known
				}
			}
		}
	}
	return telemetry.Service{Provider: conventional(p.Name), Operation: operation(p, lane)}
}

// conventional is a provider's name as the conventions for generative AI spell it; those that they do not know keep ours.
func conventional(name string) string {
	switch name {
	case "":
		return "unknown"
	case "azure-openai":
		return "azure.ai.openai"
	case "bedrock":
		return "aws.bedrock"
	case "gemini":
		return "gcp.gemini"
	case "mistral":
		return "mistral_ai"
	case "vertex":
		return "gcp.vertex_ai"
	case "xai":
		return "x_ai"
	}
	return name
}

// operation is what a model is asked for, as its name has it: events do not say.
func operation(p provider.Provider, model string) string {
	switch e := p.PromptEndpoint(model); {
	case e.Embeds():
		return "embeddings"
	case e == provider.GenerateContent:
		return "generate_content"
	}
	return "chat"
}
