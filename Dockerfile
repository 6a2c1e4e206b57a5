# The image of the manager. There is no base to pull: the binary is static, and make image puts it and the certificates of
# public authorities into the folder that is the context of this build.
FROM scratch
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY keelson /keelson
USER 65532:65532
ENTRYPOINT ["/keelson"]
CMD ["manager"]
