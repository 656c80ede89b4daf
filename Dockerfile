# The API, workers and the beat are one image. CPU by default; a CUDA build takes another index:
#   docker build --build-arg TORCH_INDEX_URL=https://download.pytorch.org/whl/cu130 .
FROM python:3.11.13-slim-bookworm AS build
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
RUN ["python", "-m", "venv", "/opt/batchjobs"]
COPY constraints.txt ./
# First and alone: from its own index, and in a layer that a change of our code leaves as it is.
RUN /opt/batchjobs/bin/pip install --index-url "$TORCH_INDEX_URL" --constraint constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY migrations ./migrations
COPY executor ./executor
COPY batchjobs ./batchjobs
RUN /opt/batchjobs/bin/pip install --constraint constraints.txt .

FROM python:3.11.13-slim-bookworm
# The home is made here so that a new volume mounted on it belongs to the user.
RUN useradd --uid 10001 --create-home --home-dir /var/lib/batchjobs batchjobs
COPY --from=build /opt/batchjobs /opt/batchjobs
ENV PATH=/opt/batchjobs/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    BATCHJOBS_HOME=/var/lib/batchjobs \
    NUMBA_CACHE_DIR=/var/lib/batchjobs/numba
WORKDIR /var/lib/batchjobs
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["batchjobs"]
CMD ["--help"]
