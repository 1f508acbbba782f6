"""vLLM's scheduler, version by version; a version that is not here was not compared with the program."""

from __future__ import annotations

from typing import TypeAlias

from forerun.serving.llm.policy.vllm import Vllm


class Vllm032(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.32"):
    """vLLM 0.32 [Kwon et al., SOSP'23]."""

    release = "0.32.0"


#: of scenarios and servers that name none
Newest: TypeAlias = Vllm032


class Vllm031(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.31"):
    """vLLM 0.31 [Kwon et al., SOSP'23]."""

    release = "0.31.0"


class Vllm030(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.30"):
    """vLLM 0.30 [Kwon et al., SOSP'23]."""

    release = "0.30.0"


class Vllm029(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.29"):
    """vLLM 0.29 [Kwon et al., SOSP'23]."""

    release = "0.29.0"


class Vllm028(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.28"):
    """vLLM 0.28 [Kwon et al., SOSP'23]."""

    release = "0.28.0"


class Vllm027(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.27"):
    """vLLM 0.27 [Kwon et al., SOSP'23]."""

    release = "0.27.1"


class Vllm026(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.26"):
    """vLLM 0.26 [Kwon et al., SOSP'23]."""

    release = "0.26.0"


class Vllm025(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.25"):
    """vLLM 0.25 [Kwon et al., SOSP'23]."""

    release = "0.25.1"


class Vllm024(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.24"):
    """vLLM 0.24 [Kwon et al., SOSP'23]."""

    release = "0.24.0"


class Vllm023(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.23"):
    """vLLM 0.23 [Kwon et al., SOSP'23]."""

    release = "0.23.0"


class Vllm022(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.22"):
    """vLLM 0.22 [Kwon et al., SOSP'23]."""

    release = "0.22.1"


class Vllm021(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.21"):
    """vLLM 0.21 [Kwon et al., SOSP'23]."""

    release = "0.21.0"


class Vllm020(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.20"):
    """vLLM 0.20 [Kwon et al., SOSP'23]."""

    release = "0.20.2"


class Vllm019(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.19"):
    """vLLM 0.19 [Kwon et al., SOSP'23]."""

    release = "0.19.1"


class Vllm018(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.18"):
    """vLLM 0.18 [Kwon et al., SOSP'23]."""

    release = "0.18.1"


class Vllm016(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.16"):
    """vLLM 0.16 [Kwon et al., SOSP'23]."""

    release = "0.16.0"


class Vllm015(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.15"):
    """vLLM 0.15 [Kwon et al., SOSP'23]."""

    release = "0.15.1"


class Vllm014(Vllm, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="vllm-0.14"):
    """vLLM 0.14 [Kwon et al., SOSP'23]."""

    release = "0.14.1"
