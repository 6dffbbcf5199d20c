package run

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestADiagnosisThatDoesNotReturnIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		ctx, stop := context.WithTimeout(t.Context(), DiagnosisTime)
		defer stop()
		begun := time.Now()
		d := Bounded(ctx, func(context.Context) gate.Diagnosis {
			<-never
			return gate.Diagnosis{Cause: "late"}
		})
		if took := time.Since(begun); took > DiagnosisTime+time.Second || d.Cause != "" {
			t.Errorf("it took %s (%q)", took, d.Cause)
		}
		close(never)
	})
}

func TestAnInterruptDoesNotWaitForADiagnosis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, interrupt)
		begun := time.Now()
		Bounded(ctx, func(context.Context) gate.Diagnosis {
			time.Sleep(time.Minute)
			return gate.Diagnosis{}
		})
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it took %s", took)
		}
		time.Sleep(time.Minute) // until it is back after all
	})
}

func TestAStoppedDiagnosisKeepsAPartialResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		d := Bounded(ctx, func(ctx context.Context) gate.Diagnosis {
			<-ctx.Done()
			return gate.Diagnosis{Cause: "half"}
		})
		if d.Cause != "half" {
			t.Errorf("got %q", d.Cause)
		}
	})
}
